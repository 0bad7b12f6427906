"""Readings with noise: curves, counts and total under the readings' promise, charged to every home's account.

The noisy vector is written to the folder before the release is recorded, and the release is recorded before anything
public is written: whatever interrupts a run, the vector is never drawn twice. Everything public is made from it and the
public settings (:mod:`shoal.readings.publication`); ``released`` and ``owner.json`` are the owner's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Any, ClassVar

import numpy as np
import polars as pl

from shoal import validation
from shoal.errors import BudgetError, InputError, LedgerError, UnreachableError
from shoal.files import digest_of
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import FitFacts
from shoal.product.card.statements import OWNER as TO_OWNER
from shoal.product.card.statements import WARNINGS, Statement
from shoal.product.ledger.budgets import window_start
from shoal.product.runs.config import OF_READINGS, Config
from shoal.product.runs.fit_stage import label_noun
from shoal.product.runs.folder import CSV, FIT, PARQUET
from shoal.product.runs.inputs import read_curves
from shoal.product.runs.kinds.kind import Kind, mean_kw, release_facts
from shoal.product.runs.owner_ledger import as_period
from shoal.product.runs.release_check import check_readings
from shoal.product.runs.stage_work import Stage, StageOutcome, Work
from shoal.product.sources.class_table import LABEL, declared_rows
from shoal.product.sources.frames import spreadsheet_safe
from shoal.readings.account import MembershipAudit, audit_membership
from shoal.readings.class_tables import noisy_table_plan, sum_of_label_vectors
from shoal.readings.crowds import (
    check_curves,
    home_vectors,
    noisy_crowds_from_vector,
    public_tables,
    sum_of_home_vectors,
)
from shoal.readings.plan import CrowdsPlan, noisy_crowds_plan
from shoal.readings.population_error import w1_bounds
from shoal.readings.publication import (
    PLAN,
    PublicSettings,
    Series,
    join_curves,
    joined_public_curves,
    plan_in_series,
    public_files,
    timestamps,
)
from shoal.rounding import lower, percent, upper
from shoal.validation import FloatArray

DOING = "drawing noise and recording the release"
NOISY, OWNER, ROWS = "noisy_vector.json", "owner.json", "rows.parquet"
PUBLIC = "public"
#: What a release depends on.
SETTINGS = ("secret", *OF_READINGS, "epsilon", "delta")
#: Homes whose vectors are looked at for the largest one.
LOOKED_AT = 4096


class NoisyReadings(Kind):
    """Curves, counts and total of homes, or cells of a table, made from declared settings and one noisy vector."""

    word = "readings"
    refuses = ("crowd", "boundaries", "largest_share", "method", "query", "rho")
    refusal = "{0} belongs to the label's promise: leave out {0}= with secret='readings'"
    has_not: ClassVar = {
        "rehearse": "rehearse: under secret='readings' nothing is chosen after looking at the readings, and a "
        "rehearsal looks; `shoal.noisy_crowds_plan(customers=…, epsilon=…, typical_kw=…)` says what to expect from "
        "declared numbers",
        "reader": "reader: rows of noisy readings are no means of crowds; the card says how far the table is off",
        "at_most": refusal,
        "within": refusal,
        "proof": "dir: there is nothing to prove here: the (ε, δ) of the readings' promise is that of one Gaussian "
        "vector, a closed form rounded up, which is on the card",
    }
    has_rows = False

    def is_asked_by(self, settings: Config, fit: FitFacts | None) -> bool:
        """Return whether the settings protect the readings."""
        return settings.declares

    def check_settings(self, settings: Config) -> None:
        """Raise InputError unless everything that a plan needs is declared."""
        missing: dict[str, str] = {}
        if settings.customers is None:
            missing["customers"] = "customers= (the number of homes on the register)"
        if settings.epsilon is None and settings.releases is None:
            missing["epsilon"] = "epsilon= (or budget_epsilon= with releases= for a series)"
        if settings.label is None and settings.origin is None:
            missing["origin"] = "origin= (the first instant to forecast; the file's end may be one home's)"
        if settings.label is None and settings.typical_kw is None:
            missing["typical_kw"] = "typical_kw= (the mean load of a typical home, from statistics)"
        if missing:
            also = "" if settings.label else "; and unit= and interval= where the file's columns do not declare them"
            raise InputError(f"{next(iter(missing))}: secret='readings' needs {', '.join(missing.values())}{also}")
        validation.count(customers=settings.customers)
        if settings.budget_epsilon is not None:
            validation.positive(budget_epsilon=settings.budget_epsilon)
        if settings.releases is not None:
            validation.count(releases=settings.releases)
            if settings.budget_epsilon is None:
                raise InputError("releases: share a budget out: releases= needs budget_epsilon=")
            if settings.epsilon is not None:
                raise InputError("epsilon: releases= shares budget_epsilon= out; leave out epsilon=")
        if settings.label is None:
            if settings.bounds or settings.cells:
                raise InputError("bounds and cells are for tables: name the column of their labels too (label=)")
        elif not settings.bounds:
            raise InputError(
                "bounds: secret='readings' needs the ends of every column of a table, bounds='column=low:high'"
            )
        else:
            declared_bounds(settings), declared_cells(settings)

    def own_stages(self) -> dict[str, Stage]:
        return {"release": Stage(DOING, SETTINGS, release_readings)}

    def stages(self, *, of_table: bool) -> dict[str, Stage]:
        every = super().stages(of_table=of_table)
        if of_table:
            settings = (*every["fit"].settings, "secret", "bounds", "cells")
            every["fit"] = replace(every["fit"], settings=settings, do=read_table)
        return every

    def refuse_unfit_release(self, work: Work) -> None:
        """Refuse a release without homes, with shards left out, or with more homes than were declared."""
        read_homes(work)

    def card(self, work: Work) -> ReleaseCard:
        """Return the card from the public settings alone; nothing is measured for it."""
        if work.facts.release is not None:
            return ReleaseCard.from_settings(
                PublicSettings.from_json((work.path / PUBLIC / PLAN).read_text(encoding="utf-8"))
            )
        return ReleaseCard.from_settings(public_settings(work))

    def owner_statements(self, work: Work) -> tuple[Statement, ...]:
        """Return homes, errors and the attack, which only the owner may know."""
        try:
            known = json.loads((work.folder / OWNER).read_bytes())
        except (OSError, ValueError):
            return ()
        audit, left_out = known["audit"], known["left_out"]
        certain, power = lower(audit["advantage_lower"], 2), audit.get("power", 0.0)
        in_it = f"{known['members']} are in the table, {left_out} could not be used. These numbers are for you only."
        attack = (
            f"Before the release, {audit['draws']} attacks were made by someone who knows all others. An advantage of "
            f"{certain} is certain, {upper(audit['advantage_promised'], 2)} is allowed. So few draws show only gross "
            "mistakes. The size of the noise was tested too"
            + (f" (20 % too little is found in {percent(power, 'lower')} of cases)." if power else ".")
        )
        said = [
            Statement("missing", TO_OWNER, str(left_out), in_it),
            Statement("attack", TO_OWNER, f"an advantage of {certain}", attack),
        ]
        if "w1" in known:
            total = f"the total is {percent(abs(known['total']))} too {'high' if known['total'] > 0 else 'low'}"
            words = f"the curves miss by {percent(known['w1'])} of the mean load (W₁), {total}"
            said.append(Statement("cost", TO_OWNER, percent(known["w1"]), f"Measured, for you only: {words}."))
        return tuple(said)

    def add_sentences(self, work: Work, parts: list[tuple[str, list[str]]], *, new: bool) -> None:
        """Add the warnings and the price, which only the owner may know: the card is made of public settings."""
        fit = work.facts.fit
        if fit is not None:
            price = price_words(work.settings, mean_kw(work))
            parts.append((WARNINGS, [*fit.doubts, *([price] if price else [])]))


def declared_bounds(config: Config) -> dict[str, tuple[float, float]]:
    """Return column -> its declared ends."""
    wrong = "bounds must look like column=low:high, with the low end below the high one, such as bounds='age=0:100'"
    ends = _parse_numbers(config.bounds, ":", wrong)
    if any(len(pair) != 2 for pair in ends.values()):
        raise InputError(wrong)
    return {name: (low, high) for name, (low, high) in ends.items()}


def declared_cells(config: Config) -> dict[str, list[float]]:
    """Return column -> the declared edges between its cells."""
    return _parse_numbers(config.cells, ",", "cells must look like column=edges, increasing, such as cells='age=30,60'")


def _parse_numbers(texts: Sequence[str], between: str, wrong: str) -> dict[str, list[float]]:
    """Return column -> increasing numbers, from texts such as age=30,60."""
    columns: dict[str, list[float]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            columns[name] = [float(number) for number in numbers.split(between)]
        except ValueError:
            name = ""
        if not name or columns[name] != sorted(set(columns[name])):
            raise InputError(wrong)
    return columns


def make_plan(config: Config) -> tuple[Any, Series]:
    """Return the plan and its series of releases, from the settings alone."""
    make: Any
    if config.label is None:
        assert config.typical_kw is not None
        make = partial(noisy_crowds_plan, typical_kw=config.typical_kw)
    else:
        make = partial(noisy_table_plan, bounds=declared_bounds(config), cells=declared_cells(config))
    assert config.customers is not None
    return plan_in_series(
        config.customers,
        epsilon=config.epsilon,
        delta=config.delta,
        budget_epsilon=config.budget_epsilon,
        releases=config.releases,
        make=make,
    )


def price_words(config: Config, mean_kw: float | None) -> str:
    """Return words on the noise beside the homes' own mean load, for the owner; empty where that is not known."""
    if config.label is not None or mean_kw is None or not 0 < mean_kw < inf:
        return ""
    plan, _ = make_plan(config)
    off = plan.expected_total * plan.typical_kw / mean_kw
    beyond = " More than it: declare another typical_kw= before you spend the budget." if off > 1 else ""
    return (
        f"These homes use {mean_kw:.2g} kW on average, and typical_kw={plan.typical_kw:g} was declared. Compared with "
        f"their own load the noise puts the total off by about {percent(off)}, if all {plan.customers} customers are "
        f"in it.{beyond} This figure is only for you."
    )


@dataclass(frozen=True)
class Homes:
    """Whose figures go into the sum, and their curves (n, k) in kW, or the columns of a table."""

    labels: list[str]
    curves: FloatArray
    columns: dict[str, FloatArray] = field(default_factory=dict)


def read_table(work: Work) -> StageOutcome:
    """Write the named columns of a class table, one row a label; labels with a cell that is no number are left out."""
    config = work.settings
    names = tuple(dict.fromkeys((*declared_bounds(config), *declared_cells(config))))
    whole, left_out = declared_rows(work.source.paths, str(config.label), names, config.encoding)
    whole = whole.with_columns(pl.col(LABEL).replace(work.spellings_on_record(whole[LABEL].to_list())))
    work.folder.write(ROWS, lambda path: whole.select(LABEL, *names).write_parquet(path))
    noun, doubts = label_noun(str(config.label)), work.doubts_of_other_ledgers(whole[LABEL].to_list())
    facts = FitFacts(str(work.source), len(whole), left_out=left_out, noun=noun, entry="column", doubts=doubts)
    return StageOutcome((ROWS,), facts)


def public_settings(work: Work) -> PublicSettings:
    """Return the public settings of a release: nothing of them comes from a reading."""
    config = work.settings
    fit = work.facts.finished_fit
    plan, series = make_plan(config)
    if not work.input.of_meters:
        period = as_period(work.declared_period)
        return PublicSettings(plan, series, period, work.state.day, noun=fit.noun)
    simulated = work.source.simulated
    minutes = config.interval if simulated is None else simulated.step_minutes
    assert minutes is not None
    origin = str(fit.origin)
    p, q = config.order
    words = (
        f"Curves are forecasts of {config.horizon} steps of {minutes} minutes from {origin}, each from its home's own "
        f"readings: {config.train_days} days of training, season by {config.season}, ARMA({p}, {q})."
    )
    return PublicSettings(
        plan, series, as_period(origin), work.state.day, origin, float(minutes), config.horizon, words, "home"
    )


def read_homes(work: Work) -> Homes:
    """Return the curves of every home that can be used, or the columns of a table.

    Refuses, before anything is begun, what would leave homes out, more homes than were declared, and none.
    """
    config = work.settings
    if not work.input.of_meters:
        rows = pl.read_parquet(work.folder / ROWS)
        columns = {name: rows[name].to_numpy() for name in rows.columns if name != LABEL}
        homes = Homes(rows[LABEL].to_list(), np.empty((len(rows), 0)), columns=columns)
    else:
        every = read_curves(work.read_listing(FIT).parts)
        if "value" not in every.columns:
            raise InputError("readings: no home can be used. Nothing was released")
        usable = np.isfinite(every["value"].to_numpy()).all(axis=1)  # of readings beyond any number, home by home
        every = every.filter(pl.Series(usable))
        homes = Homes(every["label"].to_list(), every["value"].to_numpy())
    if len(homes.labels) > (config.customers or 0):
        raise InputError(
            f"customers: the file has more than the {config.customers} that were declared (customers=). Nothing was "
            "released"
        )
    if not homes.labels:
        raise InputError("readings: no home can be used. Nothing was released")
    return homes


def sum_of_homes(homes: Homes, plan: Any) -> FloatArray:
    """Return the exact sum of all homes' vectors, without noise."""
    if isinstance(plan, CrowdsPlan):
        return sum_of_home_vectors(check_curves(homes.curves, plan), plan)
    return sum_of_label_vectors(homes.columns, plan)


def attack_largest(homes: Homes, plan: Any, total: FloatArray) -> MembershipAudit:
    """Return an attack on the home with the largest vector by someone who has all others; refuse if it succeeds."""
    if isinstance(plan, CrowdsPlan):
        vectors = home_vectors(check_curves(homes.curves[:LOOKED_AT], plan), plan)
    else:
        rows = ({name: column[i : i + 1] for name, column in homes.columns.items()} for i in range(len(homes.labels)))
        vectors = np.array([sum_of_label_vectors(row, plan) for row in islice(rows, 100)])
    vector = vectors[int((vectors**2).sum(axis=1).argmax())]
    audit = audit_membership(plan.account, vector, total - vector, plan.epsilon)
    if not audit.holds:
        raise UnreachableError(
            "audit: the noise that is drawn does not keep the promise: an attacker who has all homes but one does "
            "better than it allows. Nothing was released or recorded"
        )
    return audit


def release_readings(work: Work) -> StageOutcome:
    """Draw the noisy vector, keep it, record it and write what is made of it: in this order, each once."""
    homes, settings, ledger = read_homes(work), public_settings(work), work.ledger
    made_from = digest_of(
        [work.release_name, settings.to_json(), work.folder.digest(FIT if work.input.of_meters else ROWS)]
    )
    vector = _stored_vector(work, made_from)
    if ledger.has(work.release_name) and (vector is None or not ledger.has(_recorded_name(work, vector))):
        raise LedgerError(
            f"ledger: this release is on record, and {NOISY} in the folder does not hold what was drawn for it. It "
            "is never drawn again: restore the file, or release a later period"
        )
    if vector is None:
        total = sum_of_homes(homes, settings.plan)
        audit = attack_largest(homes, settings.plan, total)
        noisy = settings.plan.account.release(total)
        vector = {"made from": made_from, "noisy": noisy.tolist(), "audit": asdict(audit)}
        work.folder.write_content(NOISY, json.dumps(vector))
    noisy = np.array(vector["noisy"])
    made = public_files(noisy, settings)
    check_readings(made)
    try:
        ledger.record_readings(
            _recorded_name(work, vector),
            period=settings.period,
            labels=homes.labels,
            mu=settings.plan.mu,
            cap=settings.series.cap,
            since=window_start(settings.period, work.settings.train_days if work.input.of_meters else None),
        )
    except BudgetError as error:
        raise BudgetError(
            f"budget_epsilon: {error}. Releases about the same homes share one budget, fixed with the first: "
            "budget_epsilon= with releases=, the same each time",
            limit=error.limit,
        ) from None
    facts = release_facts(work, settings.period, labels=len(homes.labels))
    files = {f"{PUBLIC}/{name}": content for name, content in made.items()}
    for name, content in files.items():
        work.folder.write_content(name, content)
    owner = owner_rows(homes, noisy, settings)
    work.folder.write(CSV, lambda path: spreadsheet_safe(owner).write_csv(path))
    work.folder.write(PARQUET, lambda path: owner.write_parquet(path))
    known = {"members": len(homes.labels), "left_out": work.facts.finished_fit.left_out, "audit": vector["audit"]}
    work.folder.write_content(OWNER, json.dumps({**known, **owner_errors(homes, noisy, settings)}, indent=1))
    return StageOutcome((NOISY, CSV, PARQUET, OWNER, *files), facts)


def _recorded_name(work: Work, vector: dict[str, Any]) -> str:
    """Return the name on record: of the release and of the vector drawn for it, so that no other is taken."""
    return f"{work.release_name} {digest_of(vector['noisy'])[:32]}"


def _stored_vector(work: Work, made_from: str) -> dict[str, Any] | None:
    """Return what was drawn for this release before it was interrupted; None where nothing was."""
    try:
        content = json.loads((work.folder / NOISY).read_bytes())
    except (OSError, ValueError):
        return None
    same = isinstance(content, dict) and content.get("made from") == made_from
    return content if same else None


def owner_rows(homes: Homes, noisy: FloatArray, settings: PublicSettings) -> pl.DataFrame:
    """Return the public row that each home is nearest to: the owner's, never to leave."""
    if not isinstance(settings.plan, CrowdsPlan):
        return pl.DataFrame({"label": homes.labels, **homes.columns})
    crowds = noisy_crowds_from_vector(homes.curves, noisy, settings.plan)
    curves, counts, _ = joined_public_curves(noisy, settings)
    row = join_curves(public_tables(noisy, settings.plan, settings.horizon))[crowds.crowd_of]
    steps = settings.horizon
    return pl.DataFrame(
        {
            "household": np.repeat(np.array(homes.labels, dtype=object), steps).astype(str),
            "crowd": np.repeat(row + 1, steps),
            "members": np.repeat(counts[row], steps),
            "step": np.tile(np.arange(1, steps + 1), len(row)),
            "timestamp": timestamps(settings) * len(row),
            "kw": curves[row].ravel(),
        }
    )


def owner_errors(homes: Homes, noisy: FloatArray, settings: PublicSettings) -> dict[str, Any]:
    """Return errors of the public table beside the homes' own curves, relative to their load; for the owner."""
    if not isinstance(settings.plan, CrowdsPlan) or not homes.curves.mean() > 0:
        return {}
    curves, counts, total = joined_public_curves(noisy, settings)
    total_error = float(total.sum() / homes.curves.sum() - 1)
    return {"w1": w1_bounds(homes.curves, curves, counts)[0], "total": total_error}
