"""The last stages: attack the release, describe it on a card, and tell it on a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal.audits.audit import audit as audit_mechanism
from shoal.audits.guard import model_guard
from shoal.card.card import release_card
from shoal.designs.design import design, frontier, perfect_rho
from shoal.engine.config import Config
from shoal.engine.cost import error_against
from shoal.engine.designing import MECHANISM, laws
from shoal.engine.fitting import FORECASTS, TRUTH, Progress
from shoal.engine.folder import Folder
from shoal.engine.plain import as_json
from shoal.engine.releasing import open_ledger, released_values
from shoal.mechanism import Mechanism
from shoal.meters.forecast import Forecasts
from shoal.validation import FloatArray

AUDIT, GUARD, REPORT = "audit.json", "guard.json", "report.html"
CARDS = ("card.json", "card.md", "card.yaml")
#: Budgets of the frontier, as shares of the price of perfection.
SHARES = (0.1, 0.25, 0.5, 0.8, 1.0 + 1e-7)
#: Seconds, at most and as a share of the design's own, for each point of the frontier.
GLANCE, GLANCE_SHARE = 1.0, 0.1


def audit(folder: Folder, config: Config, progress: Progress | None = None) -> tuple[list[str], dict[str, Any]]:
    """Attack answers released through the mechanism, and ask how much rests on the model."""
    mechanism = Mechanism.load(folder / MECHANISM)
    forecasts = Forecasts.load(folder / FORECASTS)
    found = audit_mechanism(
        mechanism,
        n_samples=config.audit_samples,
        confidence=config.confidence,
        seed=config.seed,
        progress=progress,
    ).to_dict()
    guard = model_guard(
        mechanism, forecasts, query=config.query, fitted_on_private_data=True, n_draws=20, seed=config.seed
    ).to_dict()
    folder.put(AUDIT, as_json(found))
    folder.put(GUARD, as_json(guard))
    naming = found["naming"]
    return [AUDIT, GUARD], {
        "verdict": found["verdict"],
        "violations": len(found["violations"]),
        "answers": found["n_samples"],
        "confidence": found["confidence"],
        "delta_proved": float(np.array(found["delta_lower"])[:, :, 0].max(initial=0.0)),
        "delta_promised": found["promise"][0],
        "detectable_delta": found["detectable_delta"],
        "naming": None
        if naming is None
        else {
            key: naming[key]
            for key in ("accuracy", "accuracy_lower", "accuracy_upper", "promise_upper", "guessing", "n_answers")
        },
    }


def card(folder: Folder, config: Config) -> tuple[list[str], dict[str, Any]]:
    """Write the release card for machines, for people and for the registry."""
    mechanism = Mechanism.load(folder / MECHANISM)
    with open_ledger(folder, config) as ledger:
        made = release_card(
            mechanism,
            query=config.query,
            unit="household",
            forecasts=Forecasts.load(folder / FORECASTS),
            ledger=ledger,
            audit=Attacked(_read(folder, AUDIT)),
            guard=Recorded(_read(folder, GUARD)),
            seed=config.seed,
        )
    for name, text in zip(CARDS, (made.to_json(), made.to_markdown(), made.to_yaml()), strict=True):
        folder.put(name, text)
    facts = made.to_dict()
    return list(CARDS), {"digest": facts["digest"], "statement": facts["guarantee"]["statement"]}


def report(folder: Folder, config: Config, timings: Mapping[str, float]) -> tuple[list[str], dict[str, Any]]:
    """Write the page, with other designs beside the one that was used."""
    forecasts = Forecasts.load(folder / FORECASTS)
    truth = np.load(folder / TRUTH, allow_pickle=False)
    released = released_values(folder, forecasts)
    with open_ledger(folder, config) as ledger:
        spent, verification = ledger.spent(), ledger.verify()
    put = page(
        Mechanism.load(folder / MECHANISM),
        forecasts,
        truth,
        released,
        config,
        card=_read(folder, CARDS[0]),
        audit=_read(folder, AUDIT),
        guard=Recorded(_read(folder, GUARD)),
        spent=spent,
        verification=verification,
        timings=timings,
        title=config.title,
    )
    folder.write(REPORT, put)
    return [REPORT], {"ledger_intact": bool(verification.ok), **later_errors(forecasts, truth, released)}


def page(
    mechanism: Mechanism,
    forecasts: Forecasts,
    truth: FloatArray,
    released: FloatArray,
    config: Config,
    **evidence: Any,
) -> Callable[[Path], Any]:
    """What writes the page of a release, once the other designs on it are made; ``evidence`` goes onto it as it is."""
    classes = laws(forecasts, config.query)
    rho = float(mechanism.rho.mean())
    glance = min(GLANCE, GLANCE_SHARE * config.design_seconds)
    limit = config.design_seconds
    others = {
        method: design(classes, mechanism.graph, method, config.epsilon, rho, seed=config.seed, time_limit=limit)
        for method in ("none", "white", "paper")
        if method != mechanism.method and rho > 0
    }
    price = perfect_rho(classes, mechanism.graph)
    budgets = [price * share for share in SHARES]
    compared = frontier(
        classes, mechanism.graph, ("white", "transport"), config.epsilon, budgets, seed=config.seed, time_limit=glance
    )

    def put(path: Path) -> None:
        shoal.write_report(
            path,
            mechanism=mechanism,
            graph=mechanism.graph,
            released=released,
            forecasts=forecasts,
            truth=truth if np.isfinite(truth).any() else None,
            alternatives=others,
            frontier=compared,
            **evidence,
        )

    return put


def later_errors(forecasts: Forecasts, truth: FloatArray, released: FloatArray) -> dict[str, Any]:
    """Errors against what was metered later, where that is known."""
    if not np.isfinite(truth).any():
        return {}
    return {
        "mae_forecast_kw": error_against(truth, forecasts.power),
        "mae_released_kw": error_against(truth, forecasts.to_power(released)),
    }


@dataclass(frozen=True)
class Recorded:
    """A result read back from its file, for those who only want its dictionary."""

    content: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.content


@dataclass(frozen=True)
class Attacked(Recorded):
    """An audit read back from its file."""

    @property
    def delta_lower(self) -> FloatArray:
        return np.asarray(np.array(self.content["delta_lower"], dtype=np.float64)[:, :, 0])

    @property
    def promise(self) -> FloatArray:
        return np.array(self.content["promise"], dtype=np.float64)


def _read(folder: Folder, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return content
