"""The results of a run: its stages and their facts, card, tables and pages, as its folder has them.

Stages are done in order: nothing is charged before all that can fail has been seen to work. A stage is known by a key:
the digest of its settings, of the files it reads and of shoal's version. It is done where the state has it with this
key and its files are intact.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shoal
from shoal.errors import InputError
from shoal.files import digest_of, file_digest
from shoal.plaintext import sections
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import DesignFacts, FitFacts, ReleaseFacts
from shoal.product.card.statements import Statement
from shoal.product.runs import card_stage, crowd_stage
from shoal.product.runs.blocks import WorstCurve, prove_shards, worst_curve, worst_frontier
from shoal.product.runs.config import Config
from shoal.product.runs.folder import CSV, LEDGER, PARQUET, PUBLIC, RunState
from shoal.product.runs.kinds.kind import Kind
from shoal.product.runs.owner_ledger import Place
from shoal.product.runs.work import Stage, Work

if TYPE_CHECKING:
    import polars as pl

    from shoal.designs.comparison import Comparison
    from shoal.product.runs.choice import Choice
    from shoal.proofs.proof import Proof

#: The pages of :meth:`Results.explain`.
BOARD, ANNEX = "board.html", "annex.html"


#: Files that a user looks for, and what they are.
FILES = {
    card_stage.REPORT: "the report, for the data owner: it shows true answers",
    card_stage.PACKAGE: "public/ is what to share, a data package: columns, units, licence, guarantee",
    card_stage.PUBLIC: "the report to share: the table and its card, without names and true answers",
    PUBLIC: "the released figures, to share: no names",
    CSV: "the same with the name behind each row: your key, keep it private (also .parquet)",
    "card.md": "the release card, to publish with the figures (also .json)",
    crowd_stage.LEFT_OUT: "who has no row in it, and why",
    LEDGER: "crowds and what was spent; keep it, and keep it private: it is as private as the readings",
}


class Results:
    """One folder, read; :class:`shoal.Run` is the one that works in it."""

    work: Work
    rehearsed: Path | None = None  #: the file that a rehearsal wrote
    rehearsed_card: ReleaseCard | None = None  #: its card, as it would be
    new_ledger: str | None = None  #: where the owner's ledger was begun for this release, as there was none
    choice: Choice | None = None  #: the crowd that was asked for in other words, where it was

    def __init__(self, work: Work) -> None:
        self.work = work
        self.did: list[str] = []  #: stages that were done since the folder was opened

    def __repr__(self) -> str:
        """The folder and how far it is; nothing of what is in it."""
        far = f"done until {list(self.state.stages)[-1]}" if self.state.stages else "nothing done"
        return f"{type(self).__name__}({self.path.name!r}, release {self.state.release}, {far})"

    def _repr_html_(self) -> str:
        """The summary, for the owner."""
        return sections(repr(self), self.summary())

    @property
    def path(self) -> Path:
        return self.work.path

    @property
    def state(self) -> RunState:
        return self.work.state

    @property
    def config(self) -> Config:
        return self.work.settings

    @property
    def kind(self) -> Kind:
        """The kind of release."""
        return self.work.kind

    @property
    def place(self) -> Place:
        """Where the ledger of this run is."""
        return self.work.place

    @property
    def release_name(self) -> str:
        """The name of this release of this folder in the ledger."""
        return self.work.release_name

    # ------------------------------------------------------------------ stages

    @property
    def pipeline(self) -> dict[str, Stage]:
        """The stages of this run by name, in order; each rests on the one before it."""
        return self.kind.stages(of_table=self.work.source.table)

    def key(self, last: str) -> str:
        """The digest of all that goes into a stage."""
        return self._keys(last)[last]

    def _keys(self, last: str) -> dict[str, str]:
        """The key of every stage up to one: each has that of the one before."""
        work, keys = self.work, dict[str, str]()
        period = None if work.input.of_meters else work.declared_period
        for name, stage in self.pipeline.items():
            inputs: dict[str, Any] = {
                "stage": name,
                "shoal": shoal.__version__,
                "settings": work.settings.part(*stage.settings),
                "before": list(keys.values())[-1:],
            }
            if name == "fit":
                inputs |= {"source": work.source.digest, "previous": work.state.previous}
            elif name == "crowds":
                file, _, column = (work.settings.boundaries or "").rpartition(":")
                path = Path(file or column)
                boundaries = f"{file_digest(path)} {column}" if path.is_file() else work.settings.boundaries
                inputs |= {"boundaries": boundaries, "period": period}
            elif name == "release":
                inputs |= {"release": work.state.release, "period": period}
            keys[name] = digest_of(inputs)
            if name == last:
                break
        return keys

    def next_stage(self, *, until: str = "report") -> str | None:
        """The first stage, up to one, that is not done as now configured, or not intact; None where all are."""
        for name, key in self._keys(until).items():
            done = self.state.stages.get(name)
            if done is None or done.key != key or not self.work.folder.intact(done):
                return name
        return None

    def is_done(self, stage: str) -> bool:
        """Whether a stage and all that it rests on are done, as now configured, and their files intact."""
        return stage in self.pipeline and self.next_stage(until=stage) is None

    # ------------------------------------------------------------------ facts of the stages

    @property
    def fit(self) -> FitFacts | None:
        """The facts of the first stages, with crowds where they are formed; None where nothing is done."""
        return self.work.facts.people

    @property
    def design(self) -> DesignFacts | None:
        return self.work.facts.design

    @property
    def release(self) -> ReleaseFacts | None:
        return self.work.facts.release

    @property
    def exit_code(self) -> int:
        """A violation found by the audit is a guarantee not met, 4; shards left out are bad input, 2."""
        audit = self.work.facts.audit
        if audit is not None and audit.verdict == "violated" and self.is_done("audit"):
            return 4
        return 2 if self.work.facts.has_failed("fit", "design", "release") else 0

    def demand(self, *stages: str) -> None:
        """Raise unless these stages are done."""
        for stage in stages:
            if stage not in self.state.stages:
                raise InputError(f"dir: the stage {stage!r} of {self.path.name} is not done; run `shoal run` on it")

    # ------------------------------------------------------------------ what was released

    @property
    def card(self) -> ReleaseCard:
        """The release card: of averages, of what a method released under an ε, or of noisy readings."""
        names = list(self.pipeline)
        self.demand(*names[: names.index("card")])
        return self.card_so_far

    @property
    def card_so_far(self) -> ReleaseCard:
        """The card of the stages that are done."""
        return self.kind.card(self.work) if self.rehearsed_card is None else self.rehearsed_card

    @property
    def released(self) -> pl.DataFrame:
        """What was released, with whose it is.

        Of meters: household, crowd, members, step, timestamp, kw. Of a table: label, crowd, members and its columns. A
        figure that would break a rule of a row is missing. A method's release has a row per home or sample: crowd, …
        """
        import polars as pl

        self.demand("release")
        return pl.read_parquet(self.path / PARQUET)

    @property
    def report(self) -> Path:
        """The page for the data owner; it shows true answers."""
        self.demand("report")
        return self.path / card_stage.REPORT

    @property
    def handing(self) -> tuple[Statement, ...]:
        """What to pass on and what to keep, once something was released; of readings also what only the owner knows."""
        return card_stage.handing_of(self.work)

    def reader(self, row: int | Sequence[float]) -> pl.DataFrame:
        """For the owner: how far homes lie from a row, by step; one law pooled over all crowds of the release.

        It is computed from members' own figures and outside the rules of a row. Someone who has it, the rows and the
        other members' figures knows a constant load to a range of 0.05 kW (docs/sharp-edges.md): share it as readings.

        Args:
            row: the number of a crowd, or the figures of its row as they were released.

        Returns:
            entry, row, and below_10 … below_90: the figures below which so many percent of homes lie. It is never a
            crowd's own spread.

        >>> run.reader(123456)  # doctest: +SKIP
        """
        self.demand("release")
        return self.kind.reader(self.work, row)

    def compare(self, epsilon: float = 1.0, delta: float = 1e-5) -> Comparison:
        """Ways to protect the labels of this run at (ε, δ), each in its crowd, and averages; nothing is recorded."""
        import polars as pl

        from shoal.designs.comparison import compare_with_averages

        self.demand("crowds")
        both = self.work.tables.members.filter(pl.col("value").is_not_null() & ~pl.col("waits"))
        values = both["value"].to_numpy()
        scale = self.work.input.spread(values)
        crowd = both["crowd"].rank("dense").cast(pl.Int64).to_numpy()  # new crowds have numbers below zero
        return compare_with_averages(values / (scale + (scale == 0)), crowd, epsilon, delta)

    def curve(self, epsilon: Sequence[float], notion: str = "dp") -> WorstCurve:
        """δ(ε) over all pairs of the run: of what is released ("dp"), or of the ideal laws under another notion."""
        self._demand_method()
        return worst_curve(self.work, epsilon, notion)

    def frontier(
        self, rho: Sequence[float], methods: Sequence[str], *, epsilon: float | None = None, search: int = 10
    ) -> dict[str, list[float]]:
        """Method -> the δ that each budget, ascending, leaves in the worst crowd of the run. Nothing is changed."""
        self._demand_method()
        return worst_frontier(self.work, rho, methods, epsilon, search)

    def prove(self, *, epsilon: float | None = None, scope: str | None = None) -> dict[str, Proof]:
        """A proof of every shard's mechanism, written to ``proof/``; by default at the ε and scope of its design."""
        self._demand_method()
        return prove_shards(self.work, epsilon, scope)

    def _demand_method(self) -> None:
        """Raise unless something with an ε was designed."""
        self.kind.refuse("proof")
        self.demand("design")

    def explain(self, purpose: str = "", attack: str | Path | None = None) -> tuple[Path, Path]:
        """Write one page for a board and an annex for a regulator, from the card; their paths.

        ``attack`` is the attack.json of a study (`shoal attack`), whose findings both pages then have.
        """
        from shoal.product.card.render import annex, board
        from shoal.product.studies.findings import Study

        card, title, day = self.card, self.config.title, self.work.released_on
        study = None if attack is None else Study.load(attack)
        return (
            self.work.folder.put(BOARD, board(card, title=title, made=day, study=study)),
            self.work.folder.put(ANNEX, annex(card, purpose=purpose, title=title, made=day, study=study)),
        )

    # ------------------------------------------------------------------ what to say about it

    def to_dict(self) -> dict[str, Any]:
        """What is there, for machines."""
        seal, undone = self.state.ledger, self.next_stage()
        names = list(self.pipeline)
        done = names if undone is None else names[: names.index(undone)]
        return {
            "folder": str(self.path),
            "did": list(self.did),
            "release": self.state.release,
            "ledger": {"where": self.place.where, "identity": seal and seal.identity, "head": seal and seal.head},
            "config": self.config.to_json(),
            "choice": None if self.choice is None else self.choice.to_json(),
            "stages": {
                name: {
                    "done": name in done,
                    "seconds": stage.seconds,
                    "finished": stage.finished,
                    "files": sorted(stage.files),
                    **stage.facts.to_json(),
                }
                for name, stage in self.state.stages.items()
            },
        }

    def summary(self, *, verbose: bool = False) -> list[tuple[str, list[str]]]:
        """The run for people: headings with their sentences; five of them, or with ``verbose`` everything."""
        from shoal.product.card.render import summary

        work, facts = self.work, self.work.facts
        parts = [] if facts.people is None else summary(self.card_so_far, self.handing, verbose=verbose)
        work.kind.add_sentences(work, parts, new=bool(self.did))
        if facts.audit is not None and facts.audit.verdict == "violated":
            parts.insert(0, ("Violated", ["The audit found more than is promised. Do not use this release."]))
        if self.rehearsed is not None:
            words = f"A rehearsal: nothing was released, recorded or charged. {self.rehearsed} has what would be."
            parts.insert(0, ("Not released", [words]))
        elif work.state.release_key is None and facts.people is not None:
            parts.insert(0, ("Not released", ["Nothing was released, recorded or charged."]))
        if self.new_ledger is not None:
            parts.append(("Ledger", [f"There was none, so one was begun: {self.new_ledger}. Keep it."]))
        if self.choice is not None:
            parts.append(("Chosen", self.choice.sentences()))
        if not verbose:
            return parts
        spent = "crowds and everything that is charged about the same labels are on record here"
        if work.place.own:
            spent = "of this folder only" + ("; no real person is behind it" if work.source.simulated else "")
        parts.append(("Ledger", [f"{work.place.where}: {spent}."]))
        if work.timings:
            each = ", ".join(f"{name} {value:.1f} s" for name, value in work.timings.items())
            parts.append(("Time", [f"{each}; {sum(work.timings.values()):.0f} s in all."]))
        files = [f"{work.path / name}: {text}" for name, text in FILES.items() if (work.folder / name).is_file()]
        return [*parts, ("Files", files)] if files else parts
