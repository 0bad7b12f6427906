"""Blocks of whole crowds, for the methods that design something, and what a run's mechanisms promise together.

A block is a file like a shard of the first stage with the members of some crowds who have an answer today, and beside
it ``<key>.members.parquet``: label, crowd and what was metered later of every member of these crowds.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from shoal.accounting.curve import monotone_upper_ends
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable, load
from shoal.product.card.facts import Accuracy
from shoal.product.card.measures import accuracy_facts
from shoal.product.runs.config import Config
from shoal.product.runs.crowd_rows import CROWDS
from shoal.product.runs.folder import DESIGN, FIT
from shoal.product.runs.shards import Part, find_shard, seal_shard, shard_path, write_shard_file, write_shard_frame
from shoal.product.runs.stage_work import Work
from shoal.product.sources.class_table import SUFFIX, ClassTable, fit_sample_laws, refuse_copies
from shoal.product.sources.meters.predictive_laws import (
    AccountingWarning,
    Forecasts,
    absolute_errors,
    join_forecasts,
    power_accuracy,
)
from shoal.records import Record
from shoal.validation import FloatArray, IndexArray

if TYPE_CHECKING:
    from shoal.proofs.proof import Proof

BLOCKS, MEMBERS = "blocks", "members.parquet"
#: Entries of a table that a block holds, at most: what a worker has in memory.
ENTRIES = 2_000_000
#: Numbers in the covariances of a block of forecasts, at most: of a day of quarter-hours, those of some twenty homes.
COVARIANCES = 200_000


@dataclass(frozen=True, repr=False)
class ForecastAnswers:
    """Forecasts with the query that is asked of them and the unit of its answers: one answer per label."""

    forecasts: Forecasts
    query: str
    answer_unit: str

    labels = property(lambda self: self.forecasts.households)  #: who has a law
    owners = labels  #: the label of each answer
    drawn = property(lambda self: self.query == "trajectory")  #: answers depend on normals that are drawn once
    times = 1  #: answers about one label, at most
    owner_columns = ("household",)  #: columns of the released table that stay with the owner

    def take(self, labels: Sequence[str]) -> ForecastAnswers:
        """Return the answers of some of the labels, in this order."""
        place = {name: i for i, name in enumerate(self.labels)}
        return replace(self, forecasts=self.forecasts.take([place[name] for name in labels]))

    def laws(self) -> GaussianClasses:
        """Return the class laws of the query."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AccountingWarning)
            return self.forecasts.classes(self.query, unit=self.answer_unit)

    def answers(self, normals: FloatArray | None = None) -> FloatArray:
        """Return the answers that go into the mechanism, (m, k); ``normals``: the draws of a trajectory."""
        return self.forecasts.answer(self.query, normals, unit=self.answer_unit)

    def release_names(self, name: str) -> list[str]:
        """Return the names that the ledger has for each answer in the release of this name."""
        return [name] * len(self.labels)

    def answer_digests(self) -> tuple[str, ...]:
        """Return digests of each home's readings of the day before the origin, and of when that is.

        Whatever else goes into a forecast, from the same day before the same origin it answers the same question.
        """
        when = f"{self.forecasts.origin.astimezone(UTC).isoformat()} {self.forecasts.step}".encode()
        day = self.forecasts.last_day_kw
        plain = np.where(np.isnan(day), np.nan, day + 0.0).astype("<f8")
        return tuple(hashlib.sha256(when + row.tobytes()).hexdigest() for row in plain)

    def accuracy(self, mechanism: Releasable) -> Accuracy:
        """Return the errors of what a mechanism releases of these labels."""
        if self.answer_unit == "kw":
            return accuracy_facts(mechanism, self.labels, "kW")
        return mechanism.by_kind(
            mechanism=lambda gaussian: power_accuracy(gaussian.for_labels(self.labels)),
            codebook=lambda book: accuracy_facts(book, self.labels, "kW"),
        )

    def estimation_basis(self, labels: Sequence[str]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the samples that the laws of these labels rest on, for :func:`shoal.model_guard`."""
        return self.forecasts.estimation_basis(labels)

    def _power(self, released: FloatArray) -> FloatArray:
        """Return released answers in kW."""
        return released if self.answer_unit == "kw" else self.forecasts.to_power(released)

    def error_totals(self, released: FloatArray, truth: FloatArray) -> tuple[int, float]:
        """Return how many entries are known later, ``truth`` (n, h) in kW, and the sum of absolute errors there."""
        return absolute_errors(truth, self._power(released))

    def owner_rows(self, order: IndexArray, group: IndexArray, row: IndexArray, released: FloatArray) -> pl.DataFrame:
        """Return released answers as a table of household, crowd, row, step, timestamp and kw."""
        n, h = released.shape
        return pl.DataFrame(
            {
                "household": pl.Series(self.labels, dtype=pl.String).gather(np.repeat(order, h)),
                "crowd": np.repeat(group, h),
                "row": np.repeat(row, h),
                "step": np.tile(np.arange(1, h + 1), n),
                "timestamp": self.forecasts.timestamps.gather(np.tile(np.arange(h), n)),
                "kw": self._power(released)[order].ravel(),
            }
        )


#: The answers of a block, each a row that is released about its owner, and the law of every label: two classes with the
#: same attributes, so that no stage asks which of them it has.
Answers = ForecastAnswers | ClassTable


@dataclass(frozen=True)
class BlockFacts(Record):
    """What a block holds."""

    labels: int
    crowds: int
    not_gaussian: int = 0  #: labels whose rows do not follow the Gaussian law that the promise rests on


def make_blocks(work: Work) -> list[Part]:
    """Write the blocks of a run, once, and return them; crowds with too few answers today are in none."""
    config, listing = work.settings, work.read_intact(FIT)
    rows = work.tables.rows.filter(pl.col("answered") & ~pl.col("recorded") & ~pl.col("retired"))
    members = work.tables.members.filter(~pl.col("waits"))
    members = members.filter(pl.col("crowd").is_in(rows["crowd"].implode())).select("label", "crowd", "value", "truth")
    if not len(members):
        raise InputError(
            "period: no crowd has enough members with something new, or all were released for this period; nothing was "
            "released"
        )
    settings = {"crowds": work.state.stages["crowds"].files[CROWDS], **config.part("shard_size")}
    suffix, size = "zip", config.shard_size
    shards: list[Any] = []
    if work.input.of_meters:
        shards = [Forecasts.load(part.path) for part in listing.parts]
        if config.query != "point":
            size = max(min(size, COVARIANCES // config.horizon**2), 2 * config.crowd)
    else:
        shards, suffix = [ClassTable.load(listing.parts[0].path)], SUFFIX
        size = max(min(size, ENTRIES * len(members) // max(shards[0].values.size, 1)), 2 * config.crowd)
    crowds = members.group_by("crowd").len().sort("crowd")  # whole crowds, in parts of about so many labels
    place = crowds.select("crowd", block=(pl.col("len").cum_sum() - pl.col("len")) // size)
    ordered = members.join(place, on="crowd").sort("block", "crowd", "label")
    blocks = []
    for number, block in enumerate(ordered.partition_by("block", maintain_order=True)):
        path = Path(shard_path(work.path, BLOCKS, suffix, {**settings, "number": number}, listing.parts))
        blocks.append(find_shard(path) or _write_block(path, block, shards))
    return blocks


def _write_block(path: Path, members: pl.DataFrame, shards: Sequence[Any]) -> Part:
    """Write the block of some members of crowds, from the shards of the first stage."""
    here = set(members.filter(pl.col("value").is_not_null())["label"].to_list())
    strange = 0
    if isinstance(shards[0], ClassTable):
        table = shards[0].take([name for name in shards[0].labels if name in here])
        if table.times > 1:
            refuse_copies(table.values, table.owner)
            table, strange = _fit_laws(table, dict(members.select("label", "crowd").iter_rows()))
        write_shard_file(path, table.save)
    else:
        places = [[i for i, name in enumerate(shard.households) if name in here] for shard in shards]
        forecasts = join_forecasts([shard.take(at) for shard, at in zip(shards, places, strict=True) if at])
        write_shard_file(path, forecasts.save)
    write_shard_frame(path.with_suffix(f".{MEMBERS}"), members.select("label", "crowd", "truth"))
    return seal_shard(path, BlockFacts(len(here), members["crowd"].n_unique(), strange))


def _fit_laws(table: ClassTable, crowds: Mapping[str, int]) -> tuple[ClassTable, int]:
    """Return the table with covariances, and how many labels' rows are not Gaussian.

    Each crowd is fitted for itself: no law depends on who else is in the block.
    """
    n, k = table.means.shape
    covs, degrees, strange = np.empty((n, k, k)), np.empty(n), 0
    crowd = np.array([crowds[name] for name in table.labels])
    for number in np.unique(crowd):
        members = np.flatnonzero(crowd == number)
        part = table.take([table.labels[i] for i in members])
        laws = fit_sample_laws(part.values, part.owners, table.columns)
        rows = [laws.labels.index(table.labels[i]) for i in members]
        covs[members] = laws.covs[rows]
        degrees[members] = laws.estimation_basis(laws.labels)[1][rows]
        strange += int((~laws.checks().gaussian).sum())
    return replace(table, covs=covs, degrees=degrees), strange


def block_answers(block: str | Path, config: Config) -> Answers:
    """Return the answers of a block from its file, forecasts with what is asked of them."""
    if Path(block).suffix == f".{SUFFIX}":
        return ClassTable.load(block)
    return ForecastAnswers(Forecasts.load(block), config.query, config.answer_unit_of_query)


def block_members(block: str | Path) -> pl.DataFrame:
    """Return label, crowd and truth of every member of a block's crowds."""
    return pl.read_parquet(Path(block).with_suffix(f".{MEMBERS}"))


def block_laws(block: str | Path, answers: Answers) -> tuple[GaussianClasses, NeighborGraph]:
    """Return the laws of every member of a block's crowds, and the graph that joins all of a crowd.

    A member without an answer today takes the mean law of its crowd, which it then does not move; nothing about it is
    released.
    """
    laws, crowds = answers.laws(), dict(block_members(block).select("label", "crowd").iter_rows())
    known = set(laws.labels)
    absent = [name for name in crowds if name not in known]
    if absent:
        crowd = np.array([crowds[name] for name in laws.labels])

        def every(rows: FloatArray) -> FloatArray:
            return np.concatenate([rows, [rows[crowd == crowds[name]].mean(axis=0) for name in absent]])

        means, labels = every(laws.means), (*laws.labels, *absent)
        if laws.is_diagonal:
            variances = np.broadcast_to(laws.stored_variances, laws.means.shape)
            laws = GaussianClasses.diagonal(means, every(variances), labels)
        else:
            covs = np.broadcast_to(laws.stored_covs, (*laws.means.shape, laws.n_dims))
            laws = GaussianClasses(means, every(covs), labels)
    return laws, NeighborGraph.within_groups(laws.labels, [crowds[name] for name in laws.labels])


#: The folder of proofs.
PROOFS = "proof"


class WorstCurve(NamedTuple):
    """Upper ends of δ at each ε, the directed edge that has it, and the method that was asked for."""

    delta_upper: tuple[float, ...]
    worst_edge: tuple[tuple[str, str], ...]
    method: str


def worst_curve(work: Work, epsilon: Sequence[float], notion: str) -> WorstCurve:
    """Return δ(ε) over all pairs of the run, rounded up: of what is released ("dp"), or of the ideal laws."""
    shards = []
    for part in work.read_listing(DESIGN).parts:
        mechanism = load(part.path)
        if notion == "dp":
            curve = mechanism.released_curve(list(epsilon))
        elif isinstance(mechanism, Mechanism):
            curve = mechanism.curve(list(epsilon), notion)
        else:
            raise InputError("notion: what a codebook releases is accounted for as dp only")
        edges = [(str(a), str(b)) for a, b in curve.worst_edge]
        shards.append(zip(monotone_upper_ends(epsilon, curve.delta_upper).tolist(), edges, strict=True))
    worst = [max(points, key=lambda point: point[0]) for points in zip(*shards, strict=True)]
    return WorstCurve(tuple(delta for delta, _ in worst), tuple(edge for _, edge in worst), work.settings.design_method)


def worst_frontier(
    work: Work, rho: Sequence[float], methods: Sequence[str], epsilon: float | None, search: int
) -> dict[str, list[float]]:
    """Return method -> the δ that each budget, ascending, leaves in the worst crowd of the run."""
    from shoal.designs.design import frontier

    at, worst = work.settings.stated_epsilon if epsilon is None else epsilon, np.zeros((len(methods), len(rho)))
    for part, block in work.read_listing(DESIGN).pairs:
        mechanism, shard = load(part.path), block_answers(block.path, work.settings)
        graph, how = mechanism.graph, dict[str, Any](scope=mechanism.scope, times=mechanism.times)
        if shard.labels != graph.labels:
            raise InputError("dir: some labels have no answer today; ask again after a day when all have one")
        figures = frontier(shard.laws(), graph, methods, at, sorted(rho), iterations=search, **how)
        worst = np.maximum(worst, [figures.delta_upper[name] for name in methods])
    return dict(zip(methods, worst.tolist(), strict=True))


def prove_shards(work: Work, epsilon: float | None, scope: str | None) -> dict[str, Proof]:
    """Prove every shard's mechanism, write the proofs to ``proof/``, and return them by the key of the shard."""
    from shoal.proofs.proof import prove

    proofs: dict[str, Proof] = {}
    for part in work.read_listing(DESIGN).parts:
        proof = load(part.path).by_kind(
            mechanism=lambda m: prove(m, None, epsilon, scope) if m.graph.n_edges else None, codebook=lambda _: None
        )
        if proof is not None:
            proofs[part.key] = proof
            (work.folder / PROOFS).mkdir(exist_ok=True, mode=0o700)
            proof.save(work.folder / PROOFS / f"{part.key}.json")
    if not proofs:
        raise InputError("dir: this run has no Gaussian mechanism with neighbors, and nothing to prove")
    return proofs
