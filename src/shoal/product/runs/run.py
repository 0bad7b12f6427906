"""A run: stages over one folder, each done once, in order, whatever interrupts them.

| stage | does | writes |
| --- | --- | --- |
| fit | rows to shards by a hash of the name; forecasts, shard by shard | forecasts/ or laws/, fit.json, quality.csv |
| crowds | who is averaged with whom, over everybody in memory | crowds.parquet, rows.parquet, left_out.csv |
| design | only for a method: a mechanism per block of whole crowds | blocks/, mechanism/, design.json |
| audit | only for a method: attacks on crowds | audit.json |
| release | recorded, or drawn and charged, in the ledger; then written | released.csv/.parquet, public/released.csv |
| card | one card, from the facts of the stages | card.json, card.md |
| report | pages for the owner and to pass on | report.html, public/report.html |

A neighborhood is one shard, a country many; nothing else differs. A stage that is done, as
:mod:`shoal.product.runs.results` tells, is not done again. A release is never done again because something changed:
what is new about the same labels takes a later period, with ``update=True``. Who works on the tasks changes nothing.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.designs.methods import METHODS
from shoal.errors import InputError, ShoalError
from shoal.numerics import warmup
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import FitFacts, ReleaseFacts
from shoal.product.runs import secret
from shoal.product.runs.choice import Choice, Rehearsal, by_error, by_risk, naming_bound, rehearsal, share
from shoal.product.runs.config import Config, shared
from shoal.product.runs.folder import (
    DESIGN,
    FIT,
    SHARDS,
    STAGES,
    STATE,
    Done,
    Folder,
    Progress,
    RunState,
    Snapshot,
    source_of,
)
from shoal.product.runs.owner_ledger import IN_FOLDER, Seal, at, noted
from shoal.product.runs.results import ANNEX, BOARD, Results
from shoal.product.runs.shards import finished, put_whole, sweep
from shoal.product.runs.stages import card_stage, crowd_stage, fit_stage, readings_stage, release_stage, table_stage
from shoal.product.runs.stages.crowd_stage import Book
from shoal.product.sources.meters import clock

if TYPE_CHECKING:
    from shoal.product.sources.frames import Scratch

#: What a run can be stopped after -> its last stage.
UNTIL = {"fit": "crowds", "design": "design", "audit": "audit", "release": "release", "report": "report"}
#: Releases about the same labels, of overlapping histories, are not independent given the label under ``marginal``,
#: while the ledger composes releases as independent.
ONCE = (
    "query: under 'marginal' the history's own randomness protects a label, and it does so once. A second release "
    "about the same labels would not be independent of the first, and its cost is not known; use 'point' or "
    "'trajectory' for repeated releases"
)


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
            Arrow or DuckDB (any object with ``__arrow_c_stream__`` or ``__dataframe__``), whose rows are kept in the
            folder; or :class:`shoal.SimulatedMeters`. None continues with what the folder was made from.
        out: folder of the run: new, empty, or a run to continue.
        config: settings; by default those of the folder, or the defaults.
        until: the last stage to do: "fit", "design", "audit", "release" or "report".
        update: go on with a new day, or period, in this folder: a new release.
        rehearse: everything up to the release, which is recorded and charged nowhere.
        at_most: instead of ``crowd``: the largest risk of being named, ``1/20`` or ``"1-in-20"``.
        within: instead of ``crowd``: the largest expected increase of the error, ``0.10`` or ``"10%"``.
        progress: called with (stage, what is happening, done, total).
        settings: fields of :class:`shoal.Config` and of ``Speed``, on top of ``config``.

    Returns:
        The finished run: ``run.card``, ``run.released``, ``run.report``.

    >>> run = shoal.run("meters.csv", out="january", crowd=10)  # doctest: +SKIP
    >>> run.released  # doctest: +SKIP
    >>> shoal.run(frame, out="voices", label="speaker", crowd=9).card  # doctest: +SKIP
    """
    asks = at_most is not None or within is not None
    if asks and settings.get("crowd") is not None:
        raise InputError("crowd: give it, or let at_most= or within= choose it, not both")
    work = Run(out, source, config, progress, **settings)
    if work.state.ledger is not None:
        work.ledger().close()  # before anything is done: is it there, and the one it was?
        work.state = replace(work.state, ledger=replace(work.state.ledger, where=work.place.stored))
    if not rehearse and until in ("release", "report") and (update or not work.has_released):
        work.place.refuse_read_only()
    with work.held():
        if update and not rehearse:
            work.go_on()
        if asks:
            work.take(work.choose(at_most=at_most, error=within))
        if rehearse:
            work.rehearse()
        else:
            work.everything(until)
    return work


class Run(Results):
    """One folder and what has been done in it.

    ``Run(folder)`` continues the run that is there; with a ``source``, a new or empty folder becomes one. Nothing is
    written before a stage is done. ``settings`` are fields of :class:`shoal.Config` and ``Speed``, on top of
    ``config`` or of what the folder has.
    """

    def __init__(
        self,
        out: str | Path,
        source: Any = None,
        config: Config | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        self.folder = Folder(out)
        self.did = []
        self.progress = progress
        self._depth = 0
        settings, self.speed, self.horizon = shared(settings)
        self._saved = self.folder.state() if self.folder.is_run else None
        if self._saved is None and source is None:
            raise InputError(f"file: {self.folder.path.name} is not a shoal run yet; name a meter file, or a table")
        base = config or (Config() if self._saved is None else self._saved.config)
        # Where nobody asked for a size, now or in a run that was refused here, that of the crowds on record is the one.
        asked = self._saved is not None and (bool(self._saved.stages) or base.crowd != Config().crowd)
        self._any_crowd = not asked and config is None and settings.get("crowd") is None
        settled = base.changed(**settings)
        known = self._saved is not None and self._saved.ledger is not None  # then it is where it was last seen
        given = settings.get("ledger") or (None if config is None else config.ledger)
        self.named_ledger = given if known else settled.ledger
        if settled.ledger not in (None, IN_FOLDER):
            settled = replace(settled, ledger=at(settled.ledger).stored)
        self._rows: Scratch | None = None
        if self._saved is not None:
            self.state = replace(self._saved, config=settled)
        if source is not None:
            read, self._rows = source_of(source, self.path / SHARDS / "source", table=settled.label is not None)
            begun = RunState(read, settled, created=_now(), run=uuid.uuid4().hex, day=_now()[:10])
            self.state = begun if self._saved is None else replace(self.state, source=read)
        fit = self.facts("fit", FitFacts)
        if fit is not None:
            self._settle_horizon(fit)

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

    # ------------------------------------------------------------------ the folder

    @contextmanager
    def held(self) -> Iterator[Run]:
        """Hold the folder; another process is refused meanwhile.

        Where a new release is refused before anything was charged for it, the folder is left as it was.
        """
        self._depth += 1
        try:
            if self._depth > 1:
                yield self
                return
            self.folder.create()
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
                before, files = self._saved, self.folder.snapshot()
                assert before is not None
                try:
                    yield self
                except ShoalError:
                    self._undo(before, files)
                    raise
        finally:
            self._depth -= 1

    def _undo(self, before: RunState, files: Snapshot) -> None:
        """Forget a release that was refused and is not on record: a new period's, or one of readings."""
        new = self.state.release > before.release
        if not new and not (self.of_readings and self.state.releasing is not None):
            return
        if self.has_released:
            try:
                with self.ledger() as ledger:
                    known = ledger.has(self.release_name) or ledger.recorded_crowds(self.release_name) is not None
            except ShoalError:
                known = True  # it may be
            if known:
                return
        if new:
            self.folder.put_back(f"earlier/{before.release}", files)
            self.state = self._saved = before
        elif "release" not in self.state.stages:
            self._remember(replace(self.state, releasing=None))

    def _remember(self, state: RunState) -> None:
        self.folder.remember(state)
        self.state = self._saved = state

    def _forget(self, *stages: str, **changes: Any) -> None:
        left = {name: done for name, done in self.state.stages.items() if name not in stages}
        self._remember(replace(self.state, stages=left, **changes))

    # ------------------------------------------------------------------ stages

    def stages(self, until: str = "report") -> tuple[str, ...]:
        """The stages of this run, up to one that ``--until`` names."""
        if until not in UNTIL:
            raise InputError(f"until must be one of {', '.join(UNTIL)}")
        last = STAGES.index(UNTIL[until])
        return tuple(name for name in self.pipeline if STAGES.index(name) <= last)

    def everything(self, until: str = "report") -> None:
        """Every stage that is not done, up to one of them."""
        self.stages(until)  # refused here, if there is none of this name
        with self.held():
            self.do("fit")  # which may tell that a method is needed
            for stage in self.stages(until)[1:]:
                self.do(stage)

    def do(self, stage: str) -> None:
        """One stage, if it is not done; all before it must be."""
        with self.held():
            if stage in ("fit", "crowds", "design", "release"):  # what a release rests on
                self._settle()
            if stage == "fit":
                compile_first(self._say, self.config)
                for folder in (self.path / SHARDS, self.path):  # nobody works in them yet
                    sweep(folder)
                lists = [name for name in (FIT, DESIGN) if (self.folder / name).is_file()]
                parts = [part for name in lists for part in self.listing(name).parts]
                lacks = self.failed("fit", "design", "release") or any(finished(part.path) is None for part in parts)
                if lacks and not self.has_released:  # doing the stages again may mend it
                    self._forget(*STAGES, releasing=None)  # what is there is passed over, shard by shard
            releases = stage == "release" and not self.is_done("release")
            if releases:
                self._replan()
            missing = next((name for name in self.before(stage) if not self.is_done(name)), None)
            if missing is not None:
                raise InputError(
                    f"dir: the stage {missing!r} comes before {stage!r} and is not done as now configured; "
                    f"run `shoal run --out {self.path.name}` for all of them"
                )
            if releases:
                self._begin_release()
            self._stage(stage)

    def _stage(self, stage: str) -> None:
        step = self.pipeline[stage]
        if self.is_done(stage):
            self._say(stage, "already done", 1, 1)
            return
        self._say(stage, step.doing, 0, 0)
        begun = time.monotonic()
        outcome = step.work(self)
        facts = outcome.facts
        if isinstance(facts, FitFacts):
            self._settle_horizon(facts)
            self.state = replace(self.state, dates=facts.dates or self.state.dates)
        digests = {name: self.folder.digest(name) for name in outcome.files}
        seconds = round(time.monotonic() - begun, 3)
        stages = {**self.state.stages, stage: Done(self.key(stage), digests, seconds, _now(), facts.to_json())}
        state = replace(self.state, stages={name: stages[name] for name in STAGES if name in stages})
        if isinstance(facts, ReleaseFacts) and state.ledger is not None:
            state = replace(state, releasing=None, ledger=replace(state.ledger, head=facts.head))
        self._remember(state)
        self.did.append(stage)
        self._say(stage, step.doing, 1, 1)

    def foresee(self, labels: Sequence[str], origin: str, step_minutes: float) -> bool:
        """Before anything is fitted: is the ledger the one it should be, and do crowds on record allow this?"""
        book = Book.of(self, labels)
        if book.size is not None and self._any_crowd:
            self._configure(crowd=book.size)
        steps = self.config.horizon
        if self.horizon is not None:
            steps = clock.steps(self.horizon, timedelta(minutes=step_minutes))
        book.allow(replace(self.config, horizon=steps), origin, step_minutes)
        return book.size is not None

    def _settle_horizon(self, fit: FitFacts) -> None:
        """A horizon that was given as a time becomes a number of steps, once the step is known."""
        if self.horizon is not None and fit.step_minutes:
            steps = clock.steps(self.horizon, timedelta(minutes=fit.step_minutes))
            self.horizon = None
            self._configure(horizon=steps)

    def _configure(self, **settings: Any) -> None:
        self.state = replace(self.state, config=replace(self.config, **settings))

    def _settle(self) -> None:
        """Refuse to redo what a release rests on.

        A release that was begun and interrupted is continued, since the ledger gives the same answers again.
        """
        if self.has_released and "fit" in self.state.stages:
            key = self.state.release_key
            if self.key("release") != key:
                raise InputError(
                    f"dir: {self.path.name} has released, and this is {self._difference()}. Nothing was changed. What "
                    "is new about the same labels takes a later period: update=True goes on with a new day or table; "
                    "or name a new folder; their crowds are used in both"
                )
            if self.charged and "release" in self.state.stages and self.failed("design", "release"):
                self._forget("design", "audit", "release", releasing=key)  # what is mended is released under this name
        if self.state != self._saved:
            self._remember(self.state)

    def _difference(self) -> str:
        """What is not as it was when this folder released, in words."""
        before = self._saved or self.state
        names = dict.fromkeys(name for stage in self.stages("release") for name in self.pipeline[stage].settings)
        changed = [name for name in names if getattr(before.config, name) != getattr(self.config, name)]
        differences = [f"another {', '.join(changed)}"] if changed else []
        differences += ["another file"] if before.source.digest != self.state.source.digest else []
        return " and ".join(differences) or "another version of shoal"

    # ------------------------------------------------------------------ the release

    def _replan(self) -> None:
        """Form crowds anew where something was recorded about the same labels since they were formed."""
        import polars as pl

        if not self.is_done("crowds"):
            return
        with self.existing_ledger() as ledger:
            name = self.release_name
            if ledger is not None and (ledger.recorded_crowds(name) is not None or ledger.has(name)):
                return
        labels = pl.read_parquet(self.folder / crowd_stage.CROWDS, columns=["label"])["label"].to_list()
        if Book.of(self, labels).digest != self.plan.book:
            self._forget("crowds", "design", "audit")
            for stage in self.stages("audit")[1:]:
                self._stage(stage)

    def _begin_release(self) -> None:
        """What is refused here was not begun, and no ledger is made for it."""
        if self.of_readings:
            readings_stage.homes_of(self)
        if self.charged:
            assert self.design is not None
            card_stage.rehearse(self.plan.fit, self.design, self.audit if self.is_done("audit") else None)
            release_stage.refuse(self)
        # Written before the ledger is asked: a release that may have happened counts as one, and is the one of this
        # ledger.
        if not self.place.own and self.place.file is not None and not self.place.file.exists():
            self.new_ledger = self.place.where
        with self.ledger(create=True) as ledger:
            seal = Seal(ledger.identity, str(ledger.head), self.place.stored)
        if not self.alone:
            noted(self.place)
        self._remember(replace(self.state, releasing=self.key("release"), ledger=seal))

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
            interrupted = before.previous is not None and "release" not in before.stages
            if same and (interrupted or self.key("release") == before.release_key):
                return
            if "release" not in before.stages:
                raise InputError("update: the last release of this folder is not finished; finish it without")
            if "marginal" in (before.config.query, self.config.query):
                raise InputError(ONCE)
            self.ledger().close()
            daily = table_stage.DAILY if self.state.source.table else fit_stage.DAILY
            fixed = [name for name in self.pipeline["fit"].settings if name not in daily]
            differs = next((name for name in fixed if self.config.part(name) != before.config.part(name)), None)
            if differs is not None:
                raise InputError(
                    f"update: {differs} differs from that of the last release; crowds and their setting are for life, "
                    "so leave it as it was"
                )
            for name in ("origin", "period"):  # those of the last release
                if getattr(self.config, name) == getattr(before.config, name):
                    self._configure(**{name: None})
            aside = f"earlier/{self.state.release}"
            files = [name for done in self.state.stages.values() for name in done.files]
            self.folder.archive([*files, BOARD, ANNEX, STATE, release_stage.NUMBERS], aside)
            for name in (BOARD, ANNEX):  # they are about the last release, and no stage writes them anew
                (self.folder / name).unlink(missing_ok=True)
            state = replace(self.state, stages={}, release=self.state.release + 1, releasing=None)
            self._remember(replace(state, previous=aside, day=_now()[:10]))

    # ------------------------------------------------------------------ before a release

    def rehearse(self) -> None:
        """Everything up to the release, which is recorded, drawn and charged nowhere; any number of times."""
        if self.of_readings:
            raise InputError(
                "rehearse: under secret='readings' nothing is chosen after looking at the readings, and a rehearsal "
                "looks; `shoal.noisy_crowds_plan(customers=…, epsilon=…)` says what to expect from declared numbers"
            )
        with self.held():
            if self.has_released:
                raise InputError(
                    f"rehearse: {self.path.name} has released. Rehearse in a folder of its own, any number of times: "
                    "crowds on record are used there too"
                )
            self.do("fit")
            self._forget("crowds")  # by what is on record now
            for stage in self.stages("audit")[1:]:
                self.do(stage)
            if not self.charged:
                facts = release_stage.rehearse(self, self.plan)
                self.rehearsed = self.folder / release_stage.REHEARSAL
                card = ReleaseCard.of(self.plan.fit, None, facts, None, charged=False)
                self.rehearsed_card = card_stage.attacked(self, card, self.plan)

    def rehearsal(self, *, days: bool = True) -> Rehearsal:
        """What crowds of any size would cost, rehearsed on past ``days``; the first stage is done."""
        return rehearsal(self, self.known_fit, days=days)

    def choose(self, *, at_most: float | str | None = None, error: float | str | None = None) -> Choice:
        """The crowd by the risk of being named, or by the error that one can bear: see :func:`shoal.choose`."""
        if self.of_readings:
            name = "at_most" if at_most is not None else "within"
            raise InputError(f"{name} belongs to the label's promise: leave out {name}= with secret='readings'")
        if (at_most is None) == (error is None):
            raise InputError(
                "at_most and within: give one of them, the risk of being named or the error that can be borne"
            )
        with self.held():
            if not self.has_released:
                self.do("fit")
            self._say("choose", "rehearsing", 0, 0)
            if at_most is not None:
                choice = by_risk(self.rehearsal(days=False), naming_bound(at_most))
            else:
                choice = by_error(self.rehearsal(), share(error if error is not None else ""))
            self._say("choose", "rehearsing", 1, 1)
        return choice

    def take(self, choice: Choice) -> None:
        """Go on with a choice: its crowd becomes the setting of this folder, and the folder keeps why."""
        if self.has_released and choice.crowd != self.config.crowd:
            raise InputError(
                f"crowd: {self.path.name} has released with crowds of at least {self.config.crowd}, and now "
                f"{choice.crowd} would be chosen ({choice.goal}). Leave at_most= and within= out, or name a new "
                "folder. Nothing was released"
            )
        self.choice = choice
        self._configure(crowd=choice.crowd)

    def _say(self, stage: str, text: str, done: float, total: int) -> None:
        self.stage = stage
        self.tell(text, done, total)


def compile_first(tell: Progress, config: Config) -> None:
    """On the first run on a machine, say so and compile the kernels, before workers would all do it at once.

    Means of crowds need no accounting: its kernels are the larger part, and are left to the first run with an ε.
    """
    rooms = ["crowds"] if config.label is not None else ["arma", "crowds"]
    if config.charged or config.secret == secret.READINGS:
        rooms.append("accounting")
    if config.method is not None and config.method in METHODS and METHODS[config.method].timed:
        rooms.append("designs")
    if warmup.compile_kernels(lambda words: tell("compile", words, 0, 0), rooms=rooms):
        tell("compile", warmup.WORDS, 1, 1)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
