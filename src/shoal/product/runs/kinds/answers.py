"""Answers under an ε: a method releases a row per label or sample, with noise, charged to every label's account.

Workers hand noisy answers back in memory; the driver charges the ledger, one transaction per block, under a name that
belongs to this release of this folder. Killed before the commit, the draw is gone and nothing was shown; killed after
it, asking again charges nothing and gives the recorded answers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import call
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from shoal.errors import BudgetError, InputError, UnreachableError
from shoal.mechanism.releasable import load
from shoal.noise.source import standard_normals
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import MEANINGLESS, DesignFacts, FitFacts, OwnAttack, ReleaseFacts
from shoal.product.card.render import public_page
from shoal.product.runs import crowd_stage, design_stage
from shoal.product.runs.config import Config
from shoal.product.runs.crowd_blocks import Answers, block_answers, block_members
from shoal.product.runs.crowd_rows import public_crowd_numbers, record_rows
from shoal.product.runs.design_stage import hardest_block, intact_pairs
from shoal.product.runs.folder import PARQUET, SHARDS
from shoal.product.runs.kinds.kind import RELEASE_SETTINGS, Kind, csv_bytes, release_facts, write_tables
from shoal.product.runs.release_check import check_answers
from shoal.product.runs.row_rules import round_rows
from shoal.product.runs.shards import Part, shard_path, write_shard_file
from shoal.product.runs.stage_work import Stage, StageOutcome, Work
from shoal.product.studies.attackers import name_held_out_rows
from shoal.rounding import exactly, upper
from shoal.validation import FloatArray

DOING = "releasing through the ledger"
#: δ of the budget that a ledger without one is given where a design spends a ρ.
DELTA = 1e-5
#: Times the largest answer of its group that a label's expected error may be: above any load there is.
PLAUSIBLE = 10.0


class ProtectedAnswers(Kind):
    """A row is about one label, under an (ε, δ) between the members of its crowd."""

    word = "answers"
    row_per_label = True
    has_not: ClassVar = {
        "reader": "reader: a method releases a row per home under an ε; its card says how far it is off",
        **dict.fromkeys(
            ("at_most", "within"),
            "at_most and within choose the crowd of a table of averages; with a method=, a query= or several rows per "
            "label the guarantee is asked for as epsilon= and delta=, or rho=, in addition to crowd=",
        ),
    }

    def is_asked_by(self, settings: Config, fit: FitFacts | None) -> bool:
        """Return whether a method, a query of a law or several rows per label ask for this kind."""
        return settings.charged or (fit is not None and fit.most_rows > 1)

    def check_settings(self, settings: Config) -> None:
        """Raise InputError unless the settings name a guarantee to reach, or an error to spend."""
        if settings.method == "codebook":
            if (
                settings.query != "point"
                or settings.delta is not None
                or settings.rho is not None
                or not settings.epsilon
            ):
                raise InputError(
                    "method: a codebook is for constants and takes only an ε above 0, which it meets with δ = 0; give "
                    "epsilon=, and leave out delta=, rho= and query="
                )
        elif not settings.names_target:
            what = f"method {settings.method}" if settings.method else f"query {settings.query}"
            raise InputError(
                f"{what} needs a guarantee to reach, epsilon= and delta=, or an error to spend, rho=", argument=what
            )

    def check_rows(self, settings: Config, fit: FitFacts) -> None:
        """Raise InputError where labels with several rows lack a guarantee, or meet a codebook."""
        if fit.most_rows == 1:
            return
        if settings.method == "codebook":
            raise InputError("method: a codebook is for constants, one row per label; choose another method")
        if not settings.names_target:
            raise InputError(
                "label: some labels have several rows, draws of a law that is released row by row under a guarantee; "
                "give one to reach, epsilon= and delta=, or an error to spend, rho="
            )

    def crowd_terms(self, settings: Config, fit: FitFacts) -> dict[str, Any]:
        method = settings.design_method
        # With the same law as of averages, "mean", the figure is another: the mean without rounding.
        terms = {"release": "center" if method == "mean" else method}
        return terms if settings.label is None else terms | {"constants": fit.most_rows == 1}

    def own_stages(self) -> dict[str, Stage]:
        return {
            "crowds": crowd_stage.FORMING,
            "design": Stage(design_stage.DOING, design_stage.SETTINGS, design_stage.design_blocks),
            "audit": Stage(design_stage.ATTACKING, ("query",), design_stage.audit_crowds),
            "release": Stage(DOING, RELEASE_SETTINGS, release_answers),
        }

    def refuse_unfit_release(self, work: Work) -> None:
        """Refuse a release whose card could not be printed, that hides nobody, or that nobody can use."""
        design = work.facts.design
        assert design is not None
        card = replace(self.card(work), release=ReleaseFacts(name="", labels=design.labels, head=""))
        for printed in (ReleaseCard.to_json, ReleaseCard.to_markdown, public_page):
            printed(card)  # what cannot be published is not to be charged
        refuse_useless_release(work)

    def measured_card(self, work: Work) -> ReleaseCard:
        """Return the card with an attack that names the label of each row from the others; none for one row a label."""
        card, table = replace(self.card(work), attack=None), pl.read_parquet(work.folder / PARQUET)
        if work.input.of_meters or table.n_unique("label") == len(table):
            return card
        values = table.select(pl.selectors.float()).to_numpy()
        labels = np.unique(table["label"].to_numpy(), return_inverse=True)[1]
        named = name_held_out_rows(values, labels, table["crowd"].to_numpy())
        words = "the label of all other rows of the table"
        return replace(card, attack=named and OwnAttack(words, named[0], None, named[1], named[2]))


def refuse_useless_release(work: Work) -> None:
    """Raise InputError or UnreachableError for a release that hides nobody, or that nobody can use."""
    config, pairs = work.settings, intact_pairs(work)
    if config.query == "as_in_paper":
        raise InputError(
            "query: 'as_in_paper' accounts for randomness that is not in the release, so nothing is released under it; "
            "use 'point', 'trajectory' or 'marginal'"
        )
    reached = load(hardest_block(pairs)[0].path).certificate.delta_upper
    if reached >= 1.0 or (reached > MEANINGLESS and "no-guarantee" not in config.accept):
        raise UnreachableError(
            f"{'rho' if config.delta is None else 'delta'}: this design promises δ ≤ {upper(reached)} at ε = "
            f"{exactly(config.stated_epsilon)}, which protects no label, so nothing is released. Ask for a guarantee "
            "(delta=1e-5); `shoal frontier` shows what an error buys"
            + (". accept='no-guarantee' releases it all the same" if reached < 1.0 else "")
        )
    if not all(part.facts_as(DesignFacts).accuracy.beside_largest <= PLAUSIBLE for part, _ in pairs):
        raise UnreachableError(
            f"method: released figures would be off by more than {PLAUSIBLE:g} times the largest forecast of a group, "
            "so nothing is released and nothing was charged. Leave out method=, which then releases the mean "
            "of each crowd; or ask for a weaker guarantee, a larger ε or δ"
        )


def release_answers(work: Work) -> StageOutcome:
    """Draw, charge and write every block, under the name of this release.

    A block that is on record is drawn again, and the ledger gives the recorded answers for it.
    """
    config, name, pairs, ledger = work.settings, work.release_name, intact_pairs(work), work.ledger
    tables: list[pl.DataFrame] = []
    labels, later = 0, []
    private: tuple[str, ...] = ()
    with work.open_workers(len(pairs)) as executor:
        numbers, key = public_crowd_numbers(work, ledger)
        # The budget is what the design was to reach: never what a release happens to cost.
        budget = config.stated_epsilon, DELTA if config.delta is None else config.delta
        budget_set = not ledger.has_budget
        if len(pairs) > 1:  # refuse before the first block is charged what would be refused at a later one
            for _, block in pairs:
                shard = block_answers(block.path, config)
                ledger.refuse_seen(shard.owners, shard.answer_digests(), work.release_prefix)
            ledger.refuse_unusable(load(mechanism.path) for mechanism, _ in pairs)
        works = [partial(draw_block, *pair, config, work.path / SHARDS, name) for pair in pairs]
        work.report(DOING, 0, len(works))
        for number, (answers, drawn) in executor.run(call, works):
            mechanism, block = pairs[number]
            shard, members = block_answers(block.path, config), block_members(block.path)
            try:
                released = ledger.charge(
                    load(mechanism.path),
                    answers,
                    drawn,
                    list(shard.owners),
                    query_ids=shard.release_names(name),
                    readings=list(shard.answer_digests()),
                    series=work.release_prefix,
                    budget=budget,
                )
            except BudgetError as error:
                others = f". {labels} label(s) of other shards had been charged before" if len(pairs) > 1 else ""
                raise BudgetError(
                    f"{error}{others}", remaining=error.remaining, epsilon=error.epsilon, limit=error.limit
                ) from None
            crowds = {label: numbers.get(crowd, crowd) for label, crowd in members.select("label", "crowd").iter_rows()}
            tables.append(released_table(shard, crowds, np.asarray(released), key))
            named = pl.DataFrame({"label": shard.labels}, schema={"label": pl.String})
            truth = named.join(members, on="label", how="left", maintain_order="left")["truth"].to_numpy()
            later.append(shard.error_totals(released, truth))
            labels, private = labels + len(shard.labels), shard.owner_columns
            work.report(DOING, len(tables), len(works))
        record_rows(work, numbers, hashlib.sha256().hexdigest(), with_figures=False)
        facts = release_facts(
            work,
            work.facts.plan.period,
            charged=True,
            labels=labels,
            budget_set=budget_set,
            later_known=sum(known for known, _ in later),
            later_absolute=math.fsum(off for _, off in later),
            rounded=shows_too_much(work),
        )
    every = pl.concat(tables).sort("crowd", maintain_order=True)
    if facts.rounded:
        rows = work.tables.lasting_rows.select("crowd", "members", "kept").iter_rows()
        kept = {numbers.get(number, number): (members, text) for number, members, text in rows}
        every = round_rows(every, kept, work.facts.plan.columns or ["kw"])
    public = every.drop(private)
    check_answers(work, csv_bytes(public), csv_bytes(every))
    return StageOutcome(write_tables(work, public, every), facts)


def shows_too_much(work: Work) -> bool:
    """Return whether rows have too little noise to go unrounded: they are the crowd's own answer.

    Then the noise would show someone who knows all other members' answers the last one, more closely than rounding
    does. A codebook's curves are not rounded.
    """
    config, design, fit = work.settings, work.facts.design, work.facts.plan.fit
    assert design is not None
    if config.query != "point" or config.method == "codebook" or not design.all_alike or not fit.insider:
        return False
    return not work.input.of_meters or design.insider < fit.insider[0][1]


def draw_block(mechanism: Part, block: Part, config: Config, root: Path, name: str) -> tuple[FloatArray, FloatArray]:
    """Return a block's answers, and what its mechanism made of them with secure noise.

    It is for the ledger, never for a file. The draws of a trajectory are part of the answer: they are made once and
    kept under ``root``, for the release of this name, before they are used.
    """
    for part in (mechanism, block):
        part.check_digests()
    shard, drawing = block_answers(block.path, config), load(mechanism.path)
    drawn: FloatArray | None = None
    if shard.drawn:
        shape = shard.laws().means.shape
        normals = shard_path(root, "draws", "f8", {"name": name}, [mechanism])
        if not Path(normals).is_file():
            values = np.array([z / 2.0**120 for z in standard_normals(math.prod(shape))])
            write_shard_file(normals, lambda rough: rough.write_bytes(values.tobytes()))
        drawn = np.fromfile(normals).reshape(shape)
    answers = shard.answers(drawn)
    return answers, drawing.release(answers, list(shard.owners))


def released_table(shard: Answers, crowds: Mapping[str, int], released: FloatArray, key: bytes) -> pl.DataFrame:
    """Return (m, k) released answers as they are written, sorted by crowd and row.

    The rows of a crowd are in the order of their digests under a key from the cryptographic source: nobody without it
    can tell whose row comes first, and a table that is lost is written again as it was.
    """
    n = len(released)
    groups = np.array([crowds[name] for name in shard.owners], dtype=np.int64)
    questions = zip(shard.owners, shard.release_names(""), strict=True)
    lots = [hashlib.blake2b(f"{question}\0{name}".encode(), key=key).digest() for name, question in questions]
    order = np.array(sorted(range(n), key=lambda i: (groups[i], lots[i])))
    groups = groups[order]
    first = np.concatenate([[0], np.flatnonzero(np.diff(groups)) + 1])
    rows = np.arange(n) - np.repeat(first, np.diff(np.append(first, n))) + 1
    return shard.owner_rows(order, groups, rows, released)
