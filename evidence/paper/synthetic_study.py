"""The paper's synthetic study: four classes in the plane, its eight budgets, its methods and ours."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidence.paper import figures
from evidence.paper.lines import (
    CONVENTIONS,
    NOTION_NAMES,
    NOTIONS,
    Line,
    Lines,
    Progress,
    as_text,
    edge_curves,
    measure,
    per_entry,
    shown,
)  # fmt: skip
from evidence.paper.synthetic import TOTAL_BUDGETS, four_classes
from shoal import validation
from shoal.designs.design import design, frontier, perfect_rho
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.validation import FloatArray

METHODS = ("none", "white", "paper", "covariance", "additive", "transport")

#: The ε at which mechanisms are designed; their curves are drawn over all ε.
DESIGN_EPSILON = 1.0


@dataclass(frozen=True, eq=False)
class Draws:
    """Worst-edge δ at ε = 1 for several draws of the covariances: the paper does not give its own.

    Arrays are (n_draws, n_budgets), budgets being totals; one-sided PDP as the paper plots it, then hockey-stick DP.
    """

    budgets: FloatArray
    white_pdp: FloatArray
    paper_pdp: FloatArray
    white_dp: FloatArray
    paper_dp: FloatArray

    def better(self, notion: str) -> FloatArray:
        """Share of the draws in which the paper's method is better than white noise, per budget."""
        white, paper = (self.white_pdp, self.paper_pdp) if notion == "pdp" else (self.white_dp, self.paper_dp)
        return np.asarray((paper < white).mean(axis=0))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON."""
        names = ("budgets", "white_pdp", "paper_pdp", "white_dp", "paper_dp")
        return {name: getattr(self, name).tolist() for name in names}


@dataclass(frozen=True, eq=False)
class SyntheticStudy:
    """What :func:`reproduce_synthetic` found. ``perfect`` is the ρ per entry at which δ = 0 becomes affordable."""

    classes: GaussianClasses
    budgets: FloatArray
    lines: Lines
    draws: Draws
    perfect: dict[str, float]
    files: tuple[Path, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return {
            "study": "synthetic",
            "means": self.classes.means.tolist(),
            "covs": self.classes.covs.tolist(),
            "budgets": self.budgets.tolist(),
            "perfect_rho_per_entry": self.perfect,
            "curves": self.lines.to_dict(),
            "draws": self.draws.to_dict(),
        }

    def __str__(self) -> str:
        parts = ["Four classes in the plane, δ of the worst edge at ε = 1, rounded up; mechanisms designed for that."]
        for convention in CONVENTIONS:
            for notion in NOTIONS:
                rows = [
                    [
                        f"{budget:.4g}",
                        *(
                            shown(self.lines.at(1.0, method=m, convention=convention, budget=budget, notion=notion))
                            for m in METHODS
                        ),
                    ]
                    for budget in self.budgets
                ]
                parts.append(f"\nBudget {convention}, {NOTION_NAMES[notion]}")
                parts.append(as_text(["budget", *METHODS], rows))
        n = len(self.draws.white_pdp)
        parts.append(f"\nOther draws of the covariances ({n}): share in which the paper's method beats white noise")
        pdp, dp = self.draws.better("pdp"), self.draws.better("dp")
        rows = [[f"{b:.4g}", f"{p:.2f}", f"{d:.2f}"] for b, p, d in zip(self.draws.budgets, pdp, dp, strict=True)]
        parts.append(as_text(["total budget", "one-sided PDP", "hockey-stick DP"], rows))
        prices = ", ".join(f"{2 * rho:.4g} ({name})" for name, rho in self.perfect.items())
        parts.append(f"\nδ = 0 is affordable from a total budget of {prices} on.")
        return "\n".join(parts)


def reproduce_synthetic(
    out: Path | None = None, *, seed: int = 0, quick: bool = False, progress: Progress | None = None
) -> SyntheticStudy:
    """The paper's synthetic study over its eight budgets, with its methods and ours in the same axes.

    Mechanisms are designed for the least hockey-stick δ at ε = 1 and seen over ε from 0.1 to 1 by three notions: the
    one-sided PDP that the paper plots, the two-sided PDP that it defines, and hockey-stick DP. Its budgets are read in
    both conventions, as totals and per entry.

    Args:
        out: folder for figures (PNG), tables (CSV) and everything as JSON; created where it does not exist.
        seed: of the searches, and the first of the draws of covariances that show how much depends on the draw.
        quick: two budgets, few ε and two draws: does it run?
        progress: called with (stage, done, total).

    Returns:
        δ by method, budget and notion, other draws of the covariances and the files written; ``print`` shows tables.

    >>> print(reproduce_synthetic(quick=True))  # doctest: +SKIP
    """
    seed = validation.count(seed=seed, at_least=0)
    if out is not None:
        figures.demand_matplotlib()
    classes = four_classes()
    graph = NeighborGraph.complete(classes.labels)
    budgets = TOTAL_BUDGETS[[1, 7]] if quick else TOTAL_BUDGETS
    epsilon = np.linspace(0.1, 1.0, 4 if quick else 19)
    lines: list[Line] = []
    stages = [(c, m) for c in CONVENTIONS for m in METHODS if m != "none" or c == CONVENTIONS[0]]
    for number, (convention, method) in enumerate(stages):
        if progress is not None:
            progress(f"{method}, budget {convention}", number, len(stages) + 1)
        if method == "none":
            bare = design(classes, graph, "none", DESIGN_EPSILON, 1.0)
            lines += measure(
                bare, graph, epsilon, query="synthetic", method="none", convention="any", budget=0.0, rho=0.0
            )
            continue
        rhos = [per_entry(float(b), convention, classes.n_dims) for b in budgets]
        found = frontier(classes, graph, method, DESIGN_EPSILON, rhos, seed=seed, iterations=5 if quick else None)
        for budget, rho, mechanism in zip(budgets, rhos, found.mechanisms[method], strict=True):
            lines += measure(
                mechanism, graph, epsilon, query="synthetic", method=method, convention=convention,
                budget=float(budget), rho=rho,
            )  # fmt: skip
    if progress is not None:
        progress("other draws", len(stages), len(stages) + 1)
    draws = _draws(range(seed, seed + (2 if quick else 20)), budgets)
    perfect = {name: perfect_rho(classes, graph, name) for name in ("transport", "additive")}
    study = SyntheticStudy(classes, np.array(budgets), Lines(epsilon, tuple(lines)), draws, perfect)
    if progress is not None:
        progress("done", len(stages) + 1, len(stages) + 1)
    return study if out is None else _written(study, Path(out))


def _draws(seeds: range, budgets: FloatArray) -> Draws:
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in seeds:
        classes = four_classes(seed)
        graph = NeighborGraph.complete(classes.labels)
        for method in ("white", "paper"):
            mechanisms = [design(classes, graph, method, DESIGN_EPSILON, float(b), rho_is_total=True) for b in budgets]
            for notion in ("pdp", "dp"):
                at_one = [float(edge_curves(m, graph, np.ones(1), notion).max()) for m in mechanisms]
                found.setdefault((method, notion), []).append(at_one)
    table = {key: np.array(rows) for key, rows in found.items()}
    return Draws(
        np.array(budgets), table["white", "pdp"], table["paper", "pdp"], table["white", "dp"], table["paper", "dp"]
    )


def _written(study: SyntheticStudy, out: Path) -> SyntheticStudy:
    out.mkdir(parents=True, exist_ok=True)
    files = [
        figures.save(figures.classes_figure(study.classes), out / "synthetic_classes.png"),
        figures.save(figures.budgets_figure(study.lines, study.budgets, METHODS), out / "synthetic_curves.png"),
        figures.save(figures.notions_figure(study.lines, float(TOTAL_BUDGETS[1])),
                     out / "synthetic_notions.png"),
    ]  # fmt: skip
    table, everything = out / "synthetic_curves.csv", out / "synthetic.json"
    study.lines.write_csv(table)
    everything.write_text(json.dumps(study.to_dict(), indent=1), encoding="utf-8")
    return replace(study, files=(*files, table, everything))
