"""A run: stages over one folder, each done once, in order, whatever interrupts them.

| stage | does | writes |
| --- | --- | --- |
| fit | rows to shards by a hash of the name; forecasts, shard by shard | forecasts/ or laws/, fit.json, quality.csv |
| crowds | who is averaged with whom, over everybody in memory | crowds.parquet, rows.parquet, left_out.csv |
| design | only for a method: a mechanism per block of whole crowds | blocks/, mechanism/, design.json |
| audit | only for a method: attacks on crowds | audit.json |
| release | recorded, or drawn and charged, in the ledger; then written | released.csv/.parquet, public/released.csv |
| card | one card, from what the stages have told | card.json, card.md |
| report | pages for the owner and to pass on | report.html, public/report.html |

A neighborhood is one shard, a country many; nothing else differs. What forecasts are made from lies under ``shards/``,
each file named by what went into it.

A stage is known by a key: the digest of its settings, of the files it reads and of shoal's version. Where the state
has the stage with this key and its files are intact, it is not done again. A release is never done again because
something changed: what is new about the same labels takes a later period, with ``update=True``. Who works on the tasks
enters no key.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import shoal
from shoal.card.card import ReleaseCard
from shoal.card.facts import AuditFacts, DesignFacts, FitFacts, ReleaseFacts
from shoal.card.statements import HEADINGS, Statement, handing, would_protect
from shoal.errors import InputError, LedgerError, ShoalError
from shoal.files import digest_of, file_digest
from shoal.mechanism.files import load
from shoal.records import Record
from shoal.runs import reader, secret
from shoal.runs import worst_figures as curves
from shoal.runs.config import Config, Speed, shared
from shoal.runs.context import DESIGN, FIT, SHARDS, Context, Made
from shoal.runs.folder import LEDGER, STAGES, STATE, Done, Folder, State, without
from shoal.runs.head_start import head_start
from shoal.runs.owner_ledger import Place, Seal, at, opened, place, without_password
from shoal.runs.rehearsal import Rehearsal, rehearsal
from shoal.runs.sources import MeterFile, Source
from shoal.runs.stages import (
    audit_stage,
    card_stage,
    crowd_stage,
    design_stage,
    fit_stage,
    means_stage,
    readings_stage,
    release_stage,
    report_stage,
    table_stage,
)
from shoal.runs.stages.crowd_stage import Book, CrowdFacts
from shoal.runs.stages.record import NUMBERS
from shoal.runs.store import finished, put_whole, sweep
from shoal.sources.frames import stored
from shoal.sources.meters import clock

if TYPE_CHECKING:
    import polars as pl

    from shoal.ledger.ledger import Ledger
    from shoal.proofs.proof import Proof
    from shoal.runs.choice import Choice

#: The pages of :meth:`Run.explain`.
BOARD, ANNEX = "board.html", "annex.html"
#: Where proofs lie in the folder of a run.
PROOFS = "proof"
#: The order in which a run takes its stages: nothing is charged before all that can fail has been seen to work.
ORDER = ("fit", "crowds", "design", "audit", "release", "card", "report")
#: Stages that only a method has.
METHOD = ("design", "audit")
#: What a run can be stopped after -> its last stage.
UNTIL = {"fit": "crowds", "design": "design", "audit": "audit", "release": "release", "report": "report"}
#: Stage -> what does it.
STAGE: dict[str, Any] = {
    "crowds": crowd_stage,
    "design": design_stage,
    "release": release_stage,
    "audit": audit_stage,
    "card": card_stage,
    "report": report_stage,
}
#: Called with (stage, what is happening, done, total); total 0 where it is not known.
Progress = Callable[[str, str, float, int], None]
Kind = TypeVar("Kind", bound=Record)


def run(
    source: str | Path | Any,
    out: str | Path = "shoal-run",
    *,
    config: Config | None = None,
    until: str = "report",
    update: bool = False,
    rehearse: bool = False,
    at_most: float | str | None = None,
    within: float | str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Run:
    """All that the command ``shoal run`` does: from a file to a table that may be passed on, its card and its report.

    Where ``out`` holds a run, it is continued; a second call releases nothing.

    Args:
        source: readings, or with ``label`` a table with a row per answer: a CSV, Parquet or Arrow file, a folder of
            them, an address that Polars scans (``s3://…``) or a Delta table; a frame of Polars, lazy ones too, pandas,
            Arrow or DuckDB (any object with ``__arrow_c_stream__`` or ``__dataframe__``), whose rows are kept in
            the folder; or :class:`shoal.SimulatedMeters`. None continues with what the folder was made from.
        out: folder of the run: new, empty, or a run to continue.
        config: settings; by default those of the folder, or the defaults.
        until: the last stage to do: "fit", "design", "audit", "release" or "report".
        update: go on with a new day, or period, in this folder: a new release.
        rehearse: everything up to the release, which is recorded and charged nowhere.
        at_most: instead of ``crowd``: the largest risk of being named, ``1/20`` or ``"1-in-20"``.
        within: instead of ``crowd``: the largest expected increase of the error, ``0.10`` or ``"10%"``.
        progress: called with (stage, what is happening, done, total).
        settings: fields of :class:`shoal.Config` and of :class:`shoal.Speed`, on top of ``config``.

    Returns:
        The finished run: ``run.card``, ``run.released``, ``run.report``.

    >>> run = shoal.run("meters.csv", out="january", crowd=10)  # doctest: +SKIP
    >>> run.released  # doctest: +SKIP
    >>> shoal.run(frame, out="voices", label="speaker", crowd=9).card  # doctest: +SKIP
    """
    chosen, speed = shared(settings)
    asks = at_most is not None or within is not None
    if asks and chosen.get("crowd") is not None:
        raise InputError("crowd: give it, or let --at-most or --within choose it, not both")
    going = Run(out, source, config, speed, progress, **chosen)
    if going.state.ledger is not None:
        going.ledger().close()  # before anything is done: is it there, and the one it was?
    with going.held(), going.unless_refused():
        if update and not rehearse:
            going.go_on()
        if asks:
            going.take(going.choose(at_most=at_most, error=within))
        if rehearse:
            going.rehearse()
        else:
            going.everything(until)
    return going


class Run:
    """One folder and what has been done in it.

    ``Run(folder)`` continues the run that is there; with a ``source``, a new or empty folder becomes one. Nothing is
    written before a stage is done. ``settings`` are fields of :class:`shoal.Config`, on top of ``config`` or of what
    the folder has.
    """

    def __init__(
        self,
        out: str | Path,
        source: Any = None,
        config: Config | None = None,
        speed: Speed | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        self.folder = Folder(out)
        self._horizon, settings = _as_time(settings)
        chosen, plain = shared(settings)
        self.speed = plain if speed is None else speed
        self.progress = progress
        self.did: list[str] = []
        self.rehearsed: Path | None = None  #: what a rehearsal wrote
        self.choice: Choice | None = None  #: the crowd that was asked for in other words, where it was
        self._depth = 0
        self._saved = self.folder.state() if self.folder.is_run else None
        if self._saved is None and source is None:
            raise InputError(f"file: {self.folder.path.name} is not a shoal run yet; name a meter file, or a table")
        base = config or (Config() if self._saved is None else self._saved.config)
        settled = base.changed(**chosen)
        # Where nobody asked for a size, that of the crowds on record is the one.
        self._any_crowd = self._saved is None and config is None and chosen.get("crowd") is None
        self._named = settled.ledger  # with its password, which is used and written nowhere
        if settled.ledger is not None:
            settled = replace(settled, ledger=without_password(settled.ledger))
        self._rows = stored(source)
        read = self._read(source, settled) if source is not None else None
        if self._saved is not None:
            self.state = replace(self._saved, source=read or self._saved.source, config=settled)
        else:
            assert read is not None
            self.state = State(read, settled, created=_now(), run=uuid.uuid4().hex, day=_now()[:10])
        fit = self._told("fit", FitFacts)
        if fit is not None:
            self._settle_horizon(fit)

    def _settle_horizon(self, fit: FitFacts) -> None:
        """A horizon that was given as a time becomes a number of steps, once the step is known."""
        if self._horizon is None or not fit.step_minutes:
            return
        steps = clock.steps(self._horizon, timedelta(minutes=fit.step_minutes))
        self._horizon = None
        self.state = replace(self.state, config=replace(self.config, horizon=steps))

    def _foresee(self, labels: Sequence[str], origin: str, step_minutes: float) -> None:
        """Before anything is fitted: is the ledger the one it should be, and do crowds on record allow this?"""
        with self.existing_ledger() as ledger:
            book = Book.read(ledger, labels)
        size = crowd_stage.recorded_size(book)
        if size is not None and self._any_crowd:
            self.state = replace(self.state, config=replace(self.config, crowd=size))
        crowd_stage.foreseen(self.config, book, origin, step_minutes)

    def _read(self, source: Any, config: Config) -> Source:
        """The source that was named; a frame is kept in the folder, as a file that is written when a stage is done."""
        rows = self._rows
        if rows is None:
            return Source.of(source, table=config.label is not None)
        digest = file_digest(rows.path)
        path = self.folder.path.resolve() / SHARDS / "source" / f"{digest[:32]}.parquet"
        file = MeterFile(rows.name, digest, rows.path.stat().st_size)
        return Source(digest, str(path), (file,), table=config.label is not None)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in a folder, to look at or to continue.

        Returns:
            The run as its folder has it; nothing is computed.

        >>> run = Run.open("january")  # doctest: +SKIP
        >>> run.card.statement  # doctest: +SKIP
        """
        Folder(folder).state()
        return cls(folder)

    def __repr__(self) -> str:
        """The folder and how far it is; nothing of what is in it."""
        done = [name for name in ORDER if name in self.state.stages]
        far = f"done until {done[-1]}" if done else "nothing done"
        return f"Run({self.path.name!r}, release {self.state.release}, {far})"

    @property
    def config(self) -> Config:
        return self.state.config

    @property
    def path(self) -> Path:
        return self.folder.path

    @contextmanager
    def held(self) -> Iterator[Run]:
        """Hold the folder; another process is refused meanwhile."""
        if self._depth == 0:
            self.folder.create()
        self._depth += 1
        try:
            if self._depth > 1:
                yield self
                return
            with self.folder.locked():
                now = self.folder.state() if self.folder.is_run else None
                if now != self._saved:
                    raise InputError(f"out: another shoal has worked in {self.path.name} meanwhile; run again")
                if now is None:
                    self._remember(self.state)  # from here on the folder is a run, however it ends
                if self._rows is not None:
                    rows, path = self._rows, Path(self.state.source.path)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    put_whole(path, lambda rough: shutil.copyfile(rows.path, rough))
                yield self
        finally:
            self._depth -= 1

    # ------------------------------------------------------------------ what came of it

    @property
    def card(self) -> ReleaseCard:
        """The release card: of means, of what a method released under an ε, or of noisy readings."""
        self._demand("release")
        return self._card()

    @property
    def released(self) -> pl.DataFrame:
        """What was released, with whose it is.

        Of meters: household, crowd, homes, news, step, timestamp, kw. Of a table: label, crowd, homes, news and its
        columns. A method's release has a row per home or sample: crowd, row, …
        """
        import polars as pl

        self._demand("release")
        return pl.read_parquet(self.folder / means_stage.PARQUET)

    def reader(self, row: int | Sequence[float]) -> pl.DataFrame:
        """For the recipient: how far homes lie from a row, by step; one law pooled over all crowds of the release.

        Args:
            row: the number of a crowd, or the figures of its row as they were released.

        Returns:
            entry, row, and below_10 … below_90: the figures below which so many percent of homes lie. It is never a
            crowd's own spread; ``public/reader.json`` is what it is made from (:mod:`shoal.runs.reader`).

        >>> run.reader(123456)  # doctest: +SKIP
        """
        import polars as pl

        self._demand("release")
        if self.charged:
            raise InputError("reader: a method releases a row per home under an ε; its card says how far it is off")
        law = reader.ReaderLaw.read(self.folder / reader.FILE)
        if isinstance(row, int):
            table = pl.read_csv(self.folder / means_stage.PUBLIC).filter(pl.col("crowd") == row)
            if not len(table):
                raise InputError("row must be the number of a crowd in public/released.csv, or its figures")
            row = table["kw"].to_list() if "step" in table.columns else list(table.select(law.entries).row(0))
        return law.around(row)

    @property
    def report(self) -> Path:
        """The page for the data owner; it shows true answers."""
        self._demand("report")
        return self.folder / report_stage.REPORT

    @staticmethod
    def open_ledger(target: str | Path | None = None, *, create: bool = False) -> Ledger:
        """A ledger, to be closed after use: by its URL or file, of the run in a folder, or the data owner's.

        That of a run must be the one that its releases were charged to.
        """
        if target is None or "://" in str(target) or Path(target).is_file():
            return opened(at(None if target is None else str(target)), None, create=create)
        return Run.open(target).ledger(create=create)

    def curve(self, epsilon: Sequence[float], notion: str = "dp") -> curves.WorstCurve:
        """δ(ε) over all pairs of the run: of what is released ("dp"), or of the ideal laws under another notion."""
        self._demand_method()
        return curves.worst_curve(self.context("design"), list(epsilon), notion)

    def frontier(
        self, rho: Sequence[float], methods: Sequence[str], *, epsilon: float | None = None, search: int = 10
    ) -> dict[str, list[float]]:
        """Method -> the δ that each budget, ascending, leaves in the worst group of the run. Nothing is changed."""
        self._demand_method()
        at = self.config.stated_epsilon if epsilon is None else epsilon
        return curves.worst_frontier(self.context("design"), sorted(rho), list(methods), at, search)

    def prove(self, *, epsilon: float | None = None, scope: str | None = None) -> dict[str, Proof]:
        """A proof of every shard's mechanism, written to ``proof/``; by default at the ε and scope of its design."""
        from shoal.proofs.proof import prove

        self._demand_method()
        proofs: dict[str, Proof] = {}
        for part in self.context("design").listing(DESIGN).parts:
            proof = load(part.path).by_kind(
                mechanism=lambda m: prove(m, None, epsilon, scope) if m.graph.n_edges else None,
                codebook=lambda _: None,
            )
            if proof is not None:
                proofs[part.key] = proof
                (self.folder / PROOFS).mkdir(exist_ok=True, mode=0o700)
                proof.save(self.folder / PROOFS / f"{part.key}.json")
        if not proofs:
            raise InputError("dir: this run has no Gaussian mechanism with neighbors, and nothing to prove")
        return proofs

    @property
    def place(self) -> Place:
        """Where the ledger of this run is."""
        made_up = self.state.source.simulated is not None
        return place(self.path, self._named, self.state.ledger, simulated=made_up)

    def ledger(self, *, create: bool = False) -> Ledger:
        """The ledger of this run, to be closed after use: the one that its releases were charged to.

        With ``create`` it is made where there is none, as long as nothing was released.
        """
        return opened(self.place, self.state.ledger, create=create and not self.has_released)

    @contextmanager
    def existing_ledger(self) -> Iterator[Ledger | None]:
        """The ledger of this run where there is one, to look something up; None where none was made yet."""
        file = self.place.file
        if self.state.ledger is None and file is not None and not file.is_file():
            yield None
            return
        try:
            ledger = self.ledger()
        except LedgerError as error:
            if self.state.ledger is None and getattr(error, "reason", "") == "absent":
                yield None
                return
            raise
        with ledger:
            yield ledger

    # ------------------------------------------------------------------ stages

    @property
    def charged(self) -> bool:
        """Whether a method releases a row per label or sample under an ε: asked for, or several rows per label."""
        return self.config.charged or (self.fit is not None and self.fit.most_rows > 1)

    @property
    def of_readings(self) -> bool:
        """Whether the secret is the readings themselves."""
        return self.config.secret == secret.READINGS

    def stages(self, until: str = "report") -> tuple[str, ...]:
        """The stages of this run, up to one that ``--until`` names."""
        if until not in UNTIL:
            raise InputError(f"until must be one of {', '.join(UNTIL)}")
        wanted = ORDER[: ORDER.index(UNTIL[until]) + 1]
        if self.of_readings:
            return tuple(name for name in wanted if name not in (*METHOD, "crowds"))
        return wanted if self.charged else tuple(name for name in wanted if name not in METHOD)

    def everything(self, until: str = "report") -> None:
        """Every stage that is not done, up to one of them."""
        with self.held(), self.unless_refused():
            head_start(self._tell, accounting=self.config.charged)
            self._settle()
            self.do("fit")
            for stage in self.stages(until)[1:]:
                self.do(stage)

    def do(self, stage: str) -> None:
        """One stage, if it is not done."""
        with self.held(), self.unless_refused():
            if stage in ("fit", "crowds", "design", "release"):
                self._settle()
            if stage == "fit" and self._lacking() and not self.has_released:
                self._remember(without(self.state, *STAGES))  # what is there is passed over, shard by shard
            if stage == "release" and self.is_done("crowds") and not self.is_done("release"):
                self._replan()
            self.require(stage)
            if stage == "release" and not self.is_done("release"):
                self._begin_release()
                with self._unless_recorded():
                    self._stage(stage)
                return
            self._stage(stage)

    def rehearsal(self, *, days: bool = True) -> Rehearsal:
        """What crowds of any size would cost, rehearsed on past ``days``; the first stage is done."""
        fit = self._told("fit", FitFacts)
        assert fit is not None
        return rehearsal(self.context("fit"), fit, days=days)

    def choose(self, *, at_most: float | str | None = None, error: float | str | None = None) -> Choice:
        """The crowd by the risk of being named, or by the error that one can bear: see :func:`shoal.choose`."""
        if self.of_readings:
            name = "at_most" if at_most is not None else "within"
            raise InputError(
                f"{name} belongs to the label's promise: leave out {secret.option(name)} with --secret readings"
            )
        from shoal.runs.choice import chosen

        with self.held():
            head_start(self._tell, accounting=False)
            if not self.has_released:
                self.do("fit")
            self._tell("choose", "rehearsing", 0, 0)
            choice = chosen(self, at_most, error)
            self._tell("choose", "rehearsing", 1, 1)
        return choice

    def take(self, choice: Choice) -> None:
        """Go on with a choice: its crowd becomes the setting of this folder, and the folder keeps why."""
        if self.has_released and choice.crowd != self.config.crowd:
            raise InputError(
                f"crowd: {self.path.name} has released with crowds of at least {self.config.crowd}, and now "
                f"{choice.crowd} would be chosen ({choice.asked}). Leave --at-most and --within out, or name a new "
                "folder. Nothing was released"
            )
        self.choice = choice
        self.state = replace(self.state, config=replace(self.config, crowd=choice.crowd))

    def rehearse(self) -> None:
        """Everything up to the release, which is recorded, drawn and charged nowhere; any number of times."""
        if self.of_readings:
            raise InputError(
                "rehearse: under --secret readings nothing is chosen after looking at the readings, and a rehearsal "
                "looks; `shoal.noisy_crowds_plan(customers=…, epsilon=…)` says what to expect from declared numbers"
            )
        with self.held():
            if self.has_released:
                raise InputError(
                    f"rehearse: {self.path.name} has released. Rehearse in a folder of its own, any number of times: "
                    "crowds on record are used there too"
                )
            head_start(self._tell, accounting=self.config.charged)
            self._settle()
            self.do("fit")
            self._remember(without(self.state, "crowds"))  # by what is on record now
            for stage in self.stages("audit")[1:]:
                self.do(stage)
            if not self.charged:
                name = means_stage.rehearse(self.context("release"), self._planned())
                self.rehearsed = self.folder / name

    def _begin_release(self) -> None:
        """What is refused here was not begun, and no ledger is made for it."""
        if self.of_readings:
            assert self.fit is not None
            readings_stage.refuse(self.context("release"), self.fit)
        if self.charged:
            assert self.fit is not None
            assert self.design is not None
            card_stage.rehearse(self.fit, self.design, self.audit if self.is_done("audit") else None)
            release_stage.refuse(self.context("release"))
        # Written before the ledger is asked: a release that may have happened counts as one, and is the one of this
        # ledger.
        with self.ledger(create=True) as ledger:
            seal = Seal(ledger.identity, str(ledger.head), self.place.kept)
        self._remember(replace(self.state, releasing=self.key("release"), ledger=seal))

    @contextmanager
    def _unless_recorded(self) -> Iterator[None]:
        """Where a release of readings is refused and is not on record, it was not begun: settings may be mended."""
        try:
            yield
        except ShoalError:
            if self.of_readings and not self._charged():
                self._remember(replace(self.state, releasing=None))
            raise

    def _replan(self) -> None:
        """Form crowds anew where something was recorded about the same labels since they were formed."""
        import polars as pl

        with self.existing_ledger() as ledger:
            if ledger is None or ledger.recorded_crowds(self.release_name) is not None or ledger.has(self.release_name):
                return
            labels = pl.read_parquet(self.folder / crowd_stage.CROWDS, columns=["label"])["label"].to_list()
            same = Book.read(ledger, labels).digest == self._planned().book
        if not same:
            self._remember(without(self.state, "crowds", "design", "audit"))
            for stage in self.stages("audit")[1:]:
                self._stage(stage)

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Where a new release is refused before anything was charged for it, the folder is left as it was."""
        before = self._saved
        if before is None or self._depth > 1:
            yield
            return
        names, state = self.folder.names(), (self.folder / STATE).read_bytes()
        try:
            yield
        except ShoalError:
            if self.state.release > before.release and not self._charged():
                self.folder.put_back(f"earlier/{before.release}", state, names)
                self.state = self._saved = before
            raise

    def _charged(self) -> bool:
        """Whether this release may have been charged."""
        if self.state.releasing is None and "release" not in self.state.stages:
            return False
        try:
            with self.ledger() as ledger:
                return ledger.has(self.release_name) or ledger.recorded_crowds(self.release_name) is not None
        except ShoalError:
            return True

    def go_on(self) -> None:
        """Go on with a new day, or period: put the last release aside; crowds stay as they are on record.

        In a new folder it begins. Asked for again with the same readings and settings, as after an interruption, it
        changes nothing.
        """
        with self.held():
            before = self._saved
            assert before is not None  # the folder is held
            if not before.stages and not self.has_released:
                return
            same = before.source.digest == self.state.source.digest
            if same and (before.previous is not None and "release" not in before.stages):
                return  # it was interrupted, and goes on
            if same and self.key("release") == self._released_key(before):
                return
            if "release" not in before.stages:
                raise InputError("update: the last release of this folder is not finished; finish it without --update")
            self._refuse_dependent()
            self.ledger().close()
            daily = table_stage.DAILY if self.state.source.table else fit_stage.DAILY
            now, old = self.config.to_dict(), before.config.to_dict()
            fixed = [name for name in self._settings("fit") if name not in daily and now[name] != old[name]]
            if fixed:
                raise InputError(
                    f"update: {fixed[0]} differs from that of the last release; crowds and their setting are for life, "
                    "so leave it as it was"
                )
            config = self.config
            if config.origin == before.config.origin:  # that of the last release
                config = replace(config, origin=None)
            if config.period == before.config.period:
                config = replace(config, period=None)
            aside = f"earlier/{self.state.release}"
            self._archive(aside)
            state = replace(self.state, config=config, stages={}, release=self.state.release + 1, releasing=None)
            self._remember(replace(state, previous=aside, day=_now()[:10]))

    @staticmethod
    def _released_key(state: State) -> str | None:
        done = state.stages.get("release")
        return state.releasing if done is None else done.key

    @property
    def release_name(self) -> str:
        """The name under which the ledger is asked: that of this release of this folder."""
        return f"run {self.state.run} release {self.state.release}"

    # ------------------------------------------------------------------ what is done

    def needs(self, stage: str) -> tuple[str, ...]:
        """The stages that one rests on."""
        method = self.charged
        if self.of_readings:
            return {"fit": (), "release": ("fit",), "card": ("release",), "report": ("card",)}.get(stage, ("fit",))
        return {
            "fit": (),
            "crowds": ("fit",),
            "design": ("crowds",),
            "audit": ("design",),
            "release": ("crowds", "design") if method else ("crowds",),
            "card": ("release", "audit") if method else ("release",),
            "report": ("card",),
        }[stage]

    def key(self, stage: str) -> str:
        """The digest of all that goes into a stage."""
        made_from: dict[str, Any] = {
            "stage": stage,
            "shoal": shoal.__version__,
            "settings": self.config.part(*self._settings(stage)),
            "stages": {name: self.key(name) for name in self.needs(stage)},
        }
        if stage == "fit":
            made_from["source"] = self.state.source.digest
            made_from["previous"] = self.state.previous
        if stage == "crowds":
            made_from["boundaries"] = _boundaries_digest(self.config.boundaries)
            made_from["period"] = (self.config.period or self.state.day) if self.config.label is not None else None
        if stage == "release":
            made_from["release"] = self.state.release
            if self.of_readings and self.config.label is not None:
                made_from["period"] = self.config.period or self.state.day
        return digest_of(made_from)

    def _settings(self, stage: str) -> tuple[str, ...]:
        """Settings that a stage depends on."""
        if stage == "fit":
            more = ("secret", "bounds", "cells") if self.of_readings else ()
            return (*table_stage.SETTINGS, *more) if self.state.source.table else fit_stage.SETTINGS
        if stage == "release" and self.of_readings:
            return readings_stage.SETTINGS
        settings: tuple[str, ...] = STAGE[stage].SETTINGS
        return settings

    def is_done(self, stage: str) -> bool:
        """Whether a stage and all that it rests on are done, as now configured, and their files intact."""
        done = self.state.stages.get(stage)
        return (
            all(self.is_done(name) for name in self.needs(stage))
            and done is not None
            and done.key == self.key(stage)
            and self.folder.intact(done)
        )

    def what_differs(self) -> str:
        """What is not as it was when this folder released, in words."""
        before = self._saved or self.state
        names = dict.fromkeys(
            name for stage in ("fit", "crowds", "design", "release") for name in self._settings(stage)
        )
        changed = [name for name in names if getattr(before.config, name) != getattr(self.config, name)]
        differences = [f"another {', '.join(changed)}"] if changed else []
        differences += ["another file"] if before.source.digest != self.state.source.digest else []
        return " and ".join(differences) or "another version of shoal"

    @property
    def has_released(self) -> bool:
        """Whether this folder has released, or may have: a release that was begun counts."""
        return "release" in self.state.stages or self.state.releasing is not None

    @property
    def fit(self) -> FitFacts | None:
        """What the first stages told, with crowds where they are formed; None where nothing is done."""
        planned = self._told("crowds", CrowdFacts)
        if planned is None:
            return self._told("fit", FitFacts)
        return planned.fit

    def _planned(self) -> CrowdFacts:
        """What the crowd stage told."""
        planned = self._told("crowds", CrowdFacts)
        if planned is None:
            raise InputError(f"dir: {self.path.name} has no crowds yet; run `shoal run` on it")
        return planned

    @property
    def design(self) -> DesignFacts | None:
        return self._told("design", DesignFacts)

    @property
    def release(self) -> ReleaseFacts | None:
        return self._told("release", ReleaseFacts)

    @property
    def audit(self) -> AuditFacts | None:
        return self._told("audit", AuditFacts)

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of the stages that are done."""
        return {name: self.state.stages[name].seconds for name in STAGES if name in self.state.stages}

    @property
    def exit_code(self) -> int:
        """A violation found by the audit is a guarantee not met, 4; shards left out are bad input, 2."""
        if self.audit is not None and self.audit.verdict == "violated" and self.is_done("audit"):
            return 4
        return 2 if any(facts is not None and facts.failed for facts in (self.fit, self.design, self.release)) else 0

    def to_dict(self) -> dict[str, Any]:
        """What is there, for machines."""
        seal = self.state.ledger
        return {
            "folder": str(self.path),
            "did": list(self.did),
            "release": self.state.release,
            "ledger": {"where": self.place.where, "identity": seal and seal.identity, "head": seal and seal.head},
            "config": self.config.to_dict(),
            "choice": None if self.choice is None else self.choice.to_dict(),
            "stages": {
                name: {
                    "done": self.is_done(name),
                    "seconds": done.seconds,
                    "finished": done.finished,
                    "files": sorted(done.files),
                    **done.facts,
                }
                for name, done in ((name, self.state.stages[name]) for name in STAGES if name in self.state.stages)
            },
        }

    def summary(self, *, verbose: bool = False) -> list[tuple[str, list[str]]]:
        """What happened, for people: headings with their sentences; five of them, or with ``verbose`` everything."""
        from shoal.card.render import summary

        fit = self.fit
        parts = [] if fit is None else summary(self._so_far(fit), self._handing(), verbose=verbose)
        if not self.of_readings and fit is not None:
            attack = next((lines for heading, lines in parts if heading == HEADINGS["attack"]), None)
            (attack if attack is not None else parts[-1][1]).append(would_protect(fit.labels, fit.noun))
        if self.audit is not None and self.audit.verdict == "violated":
            parts.insert(0, ("Violated", ["The audit found more than is promised. Do not use this release."]))
        if self.rehearsed is not None or (not self.has_released and fit is not None):
            words = "Nothing was released, recorded or charged."
            if self.rehearsed is not None:
                words = f"A rehearsal: {words[0].lower()}{words[1:]} {self.rehearsed} has what would have been."
            parts.insert(0, ("Not released", [words]))
        if self.choice is not None:
            parts.append(("Chosen", self.choice.sentences()))
        if not verbose:
            return parts
        where = self.place
        spent = "crowds and everything that is charged about the same labels are on record here"
        if where.own:
            spent = "of this folder alone" + ("; nobody real is behind it" if self.state.source.simulated else "")
        parts.append(("Ledger", [f"{where.where}: {spent}."]))
        if self.timings:
            each = ", ".join(f"{name} {value:.1f} s" for name, value in self.timings.items())
            parts.append(("Time", [f"{each}; {sum(self.timings.values()):.0f} s in all."]))
        files = [f"{self.path / name}: {text}" for name, text in FILES.items() if (self.folder / name).is_file()]
        return [*parts, ("Files", files)] if files else parts

    def explain(self, purpose: str = "") -> tuple[Path, Path]:
        """Write one page for a board and an annex for a regulator, from the card; their paths."""
        from shoal.card.render import annex, board

        card, made = self.card, self.state.stages["release"].finished[:10]
        title = self.config.title
        return (
            self.folder.put(BOARD, board(card, title=title, made=made)),
            self.folder.put(ANNEX, annex(card, purpose=purpose, title=title, made=made)),
        )

    # ------------------------------------------------------------------ how it is done

    def _told(self, stage: str, kind: type[Kind]) -> Kind | None:
        done = self.state.stages.get(stage)
        return None if done is None else kind.from_json(done.facts)

    def _card(self) -> ReleaseCard:
        fit, design, release, audit = self.fit, self.design, self.release, self.audit
        if fit is None or release is None or (self.charged and (design is None or audit is None)):
            raise InputError(f"dir: {self.path.name} has not been through all stages; run `shoal run` on it")
        return self._so_far(fit)

    def _so_far(self, fit: FitFacts) -> ReleaseCard:
        """The card of the stages that are done."""
        if self.of_readings:
            released = "release" in self.state.stages
            settings = readings_stage.public_settings(self.path) if released else None
            return ReleaseCard.of_readings(settings or readings_stage.settings_of(self.context("release"), fit))
        design, audit = (self.design, self.audit) if self.charged else (None, None)
        card = ReleaseCard.of(fit, design, self.release, audit, charged=self.charged)
        done = self._told("card", card_stage.CardFacts)
        return card if done is None else replace(card, attack=done.attack, course=done.course, rules=done.rules)

    def _handing(self) -> tuple[Statement, ...]:
        """What to pass on and what to keep, once something was released; of readings also what only the owner knows."""
        if self.of_readings and "release" in self.state.stages:
            own = readings_stage.owner_statements(self.path)
            return (*own, *handing(self.path.name, self.place.where))
        return handing(self.path.name, self.place.where) if "release" in self.state.stages else ()

    def _demand_method(self) -> None:
        """Raise unless something with an ε was designed."""
        if not self.charged:
            raise InputError(
                "dir: nothing is certified here: rows are averages over a crowd, without noise, ε or δ. A --method has "
                "something to certify"
            )
        self._demand("design")

    def _demand(self, stage: str) -> None:
        if stage not in self.state.stages:
            raise InputError(f"dir: the stage {stage!r} of {self.path.name} is not done; run `shoal run` on it")

    def context(self, stage: str) -> Context:
        """What a stage is given."""
        return Context(
            folder=self.folder,
            home=self.path,
            source=self.state.source,
            config=self.config,
            speed=self.speed,
            tell=lambda text, done, total: self._tell(stage, text, done, total),
            ledger=self.ledger,
            release_name=self.release_name,
            existing_ledger=self.existing_ledger,
            previous=self.state.previous,
            day=self.state.day,
            series=f"run {self.state.run} ",
            horizon=self._horizon,
            foresee=self._foresee if stage == "fit" else None,
        )

    def _work(self, stage: str) -> Made:
        context = self.context(stage)
        if stage == "fit":
            for folder in (context.home / SHARDS, context.home):  # nobody works in them yet
                sweep(folder)
            if self.of_readings and self.state.source.table:
                return readings_stage.read_table(context)
            return table_stage.stage(context) if self.state.source.table else fit_stage.stage(context)
        if stage == "crowds":
            fit = self._told("fit", FitFacts)
            assert fit is not None
            return crowd_stage.stage(context, fit)
        if stage == "release" and self.of_readings:
            assert self.fit is not None
            return readings_stage.stage(context, self.fit)
        if stage == "release":
            release = release_stage.stage if self.charged else means_stage.stage
            return release(context, self._planned())
        if stage == "card" and self.of_readings:
            return readings_stage.write_card(context, self._card())
        if stage == "report" and self.of_readings:
            return readings_stage.report(context, self._card(), self._handing(), self.timings)
        if stage == "card":
            return card_stage.stage(context, self._card(), self._planned())
        if stage == "report":
            made_on = self.state.stages["release"].finished[:10]
            return report_stage.stage(context, self._card(), self._planned(), self._handing(), self.timings, made_on)
        made: Made = STAGE[stage].stage(context)
        return made

    def _stage(self, stage: str) -> None:
        text = ("reading the table" if self.state.source.table else "reading meters") if stage == "fit" else ""
        if stage == "release" and self.of_readings:
            text = readings_stage.DOING
        text = text or (STAGE[stage].DOING if stage != "release" or self.charged else "recording crowds")
        if self.is_done(stage):
            self._tell(stage, "already done", 1, 1)
            return
        self._tell(stage, text, 0, 0)
        begun = time.monotonic()
        made = self._work(stage)
        if isinstance(made.facts, FitFacts):
            self._settle_horizon(made.facts)
        digests = {name: self.folder.digest(name) for name in made.files}
        seconds = round(time.monotonic() - begun, 3)
        done = Done(self.key(stage), digests, seconds, _now(), made.facts.to_json())
        stages = {**self.state.stages, stage: done}
        state = replace(self.state, stages=stages)
        if isinstance(made.facts, ReleaseFacts) and state.ledger is not None:
            state = replace(state, releasing=None, ledger=replace(state.ledger, head=made.facts.head))
        self._remember(state)
        self.did.append(stage)
        self._tell(stage, text, 1, 1)

    def require(self, stage: str) -> None:
        """Raise unless all that comes before a stage is done."""
        missing = next((name for name in self.needs(stage) if not self.is_done(name)), None)
        if missing is not None:
            where = self.path.name
            raise InputError(
                f"dir: the stage {missing!r} comes before {stage!r} and is not done as now configured; "
                f"run `shoal run --out {where}` for all of them"
            )

    def _lacking(self) -> bool:
        """Shards that failed, or are gone: doing the stages again may mend it."""
        if any(facts is not None and facts.failed for facts in (self.fit, self.design, self.release)):
            return True
        lists = [name for name in (FIT, DESIGN) if (self.folder / name).is_file()]
        parts = [part for name in lists for part in self.context("fit").listing(name).parts]
        return any(finished(part.path) is None for part in parts)

    def _failed_blocks(self) -> bool:
        return any(facts is not None and facts.failed for facts in (self.design, self.release))

    def _settle(self) -> None:
        """Refuse to redo what a release rests on.

        A release that was begun and interrupted is continued, since the ledger gives the same answers again.
        """
        if self.has_released and self._told("fit", FitFacts) is not None:
            recorded = self.state.stages.get("release")
            made = self.state.releasing if recorded is None else recorded.key
            if self.key("release") != made:
                raise InputError(
                    f"dir: {self.path.name} has released, and this is {self.what_differs()}. Nothing was changed. What "
                    "is new about the same labels takes a later period: --update goes on with a new day or table here, "
                    "or name a new folder; their crowds are used in both"
                )
            if recorded is not None and self.charged and release_stage.released_gone(self.path):
                # What the ledger has on record is written again.
                self._remember(replace(without(self.state, "release"), releasing=made))
            elif recorded is not None and self.charged and self._failed_blocks():
                # What is mended is released under the same name; all else is on record.
                self._remember(replace(without(self.state, "design", "audit", "release"), releasing=made))
        if self.state != self._saved:
            self._remember(self.state)

    def _refuse_dependent(self) -> None:
        """A release under ``marginal`` counts the history's randomness as protection, which works once.

        Another release about the same households, of the same or an overlapping history, is not independent of it given
        the household, while the ledger composes releases as independent.
        """
        before = self._saved.config.query if self._saved is not None else None
        if "marginal" in (before, self.config.query):
            raise InputError(
                "query: under 'marginal' the history's own randomness protects a household, and it does so once. A "
                "second release about the same households would not be independent of the first, and its cost is not "
                "known; use 'point' or 'trajectory' for repeated releases"
            )

    def _archive(self, under: str) -> None:
        """Copy the files of the release aside."""
        files = [name for done in self.state.stages.values() for name in done.files]
        self.folder.archive([*files, STATE, NUMBERS], under)

    def _remember(self, state: State) -> None:
        self.folder.remember(state)
        self.state = self._saved = state

    def _tell(self, stage: str, text: str, done: float, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, text, done, total)


#: Files that a user looks for, and what they are.
FILES = {
    report_stage.REPORT: "the report, for the data owner: it shows true answers",
    report_stage.PACKAGE: "public/ is what to pass on, a data package: columns, units, licence, guarantee",
    report_stage.PUBLIC: "the report to pass on: what the card says, without names and true answers",
    means_stage.PUBLIC: "the released figures, to pass on: no names",
    reader.FILE: "how far homes lie from rows, pooled over all crowds, to pass on",
    means_stage.CSV: "the same with whose row each one is: your key, keep it private (also .parquet)",
    "card.md": "the release card, to publish with the figures (also .json)",
    crowd_stage.LEFT_OUT: "who has no row in it, and why",
    LEDGER: "crowds and what was spent; keep it, and keep it private: it is as private as the readings",
}


def _as_time(settings: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """A horizon that is a time, such as 3h, apart from the other settings; a number in text is a number of steps."""
    given = settings.get("horizon")
    if not isinstance(given, str):
        return None, settings
    if given.strip().isdigit():
        return None, {**settings, "horizon": int(given)}
    clock.steps(given, timedelta(minutes=1))  # refused here, if it is no time
    return given, {name: value for name, value in settings.items() if name != "horizon"}


def _boundaries_digest(named: str | None) -> str | None:
    """The digest of the file of boundaries, with its column."""
    if named is None:
        return None
    file, colon, column = named.rpartition(":")
    path = Path(file if colon else named)
    return f"{file_digest(path)} {column}" if path.is_file() else named


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
