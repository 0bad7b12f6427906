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

Which stages there are is a matter of the kind of release (:mod:`shoal.product.runs.kinds`). A stage that is done, as
:mod:`shoal.product.runs.results` tells, is not done again.

| state of a release | reached by | from there |
| --- | --- | --- |
| new | nothing, or the next period | fit |
| fitted | fit: the first stage | plan |
| planned | plan: every stage before the release | begin |
| begun | begin: the ledger is sealed and the key of the release written | release |
| released | release: on record, and written | go on: the next period is new |

A release that was begun may have happened, so that it is continued as it was, and never done again because something
changed: what is new about the same labels takes a later period, with ``update=True``. Who works on the tasks changes
nothing.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.designs.methods import METHODS
from shoal.errors import InputError, ShoalError
from shoal.numerics import warmup
from shoal.product.runs.choice import Choice, by_error, by_risk, parse_naming_risk, rehearse_days, share
from shoal.product.runs.config import Config, split_settings
from shoal.product.runs.fit_stage import with_steps
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
    decode_facts,
    source_of,
)
from shoal.product.runs.kinds import choose_kind
from shoal.product.runs.kinds.averages import REHEARSAL
from shoal.product.runs.owner_ledger import IN_FOLDER, Book, Seal, note_ledger, place_of
from shoal.product.runs.results import ANNEX, BOARD, Results
from shoal.product.runs.rows import NUMBERS
from shoal.product.runs.shards import find_shard, put_whole, sweep
from shoal.product.runs.work import Work

if TYPE_CHECKING:
    from shoal.product.sources.frames import ScratchFile

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
            them; a frame of Polars, lazy ones too, pandas or Arrow (any object with ``__arrow_c_stream__``), whose rows
            are kept in the folder; or :class:`shoal.SimulatedMeters`. None continues with what the folder was made
            from.
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
    one = Run(out, source, config, progress, **settings)
    try:
        one.check_ledger()
        with one.hold():
            if update and not rehearse:
                one.go_on()
            if asks:
                one.take(one.choose(at_most=at_most, error=within))
            if rehearse:
                one.rehearse()
            else:
                one.everything(until)
    finally:
        one.work.close_ledger()
    return one


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
        folder = Folder(out)
        given, speed, horizon = split_settings(settings)
        work = Work(folder, speed, horizon, progress)
        super().__init__(work)
        self._depth = 0
        self._saved = saved = folder.state() if folder.is_run else None
        if saved is None and source is None:
            raise InputError(f"file: {folder.path.name} is not a shoal run yet; name a meter file, or a table")
        base = config or (Config() if saved is None else saved.config)
        # Where nobody asked for a size, now or in a run that was refused here, that of the crowds on record is the one.
        asked = saved is not None and (bool(saved.stages) or base.crowd != Config().crowd)
        work.any_crowd = not asked and config is None and given.get("crowd") is None
        # A ledger that was charged is where it was last seen, unless another place is named now.
        work.named_ledger = given.get("ledger") or (None if config is None else config.ledger)
        if saved is None or saved.ledger is None:
            work.named_ledger = work.named_ledger or base.ledger
        chosen = base.with_settings(**given)
        if chosen.ledger not in (None, IN_FOLDER):
            chosen = replace(chosen, ledger=place_of(chosen.ledger).stored)
        self._rows: ScratchFile | None = None
        self._period = given.get("period")
        state = None if saved is None else replace(saved, config=chosen)
        if source is not None:
            read, self._rows = source_of(source, folder.path / SHARDS / "source", table=chosen.label is not None)
            new = RunState(read, chosen, created=_now(), run=uuid.uuid4().hex, day=_now()[:10])
            state = new if state is None else replace(state, source=read)
        assert state is not None
        fit = state.facts.fit
        chosen = with_steps(chosen, horizon, None if fit is None else fit.step_minutes)
        work.state = replace(state, config=chosen, kind=choose_kind(chosen, fit).word)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in a folder, to look at or to continue.

        Returns:
            The run as its folder has it; nothing is computed.

        >>> run = Run.open("january")  # doctest: +SKIP
        >>> run.card.statement  # doctest: +SKIP
        """
        if not Folder(folder).is_run:
            Folder(folder).state()  # says why
        return cls(folder)

    # ------------------------------------------------------------------ the folder

    @contextmanager
    def hold(self) -> Iterator[Run]:
        """Hold the folder; another process is refused meanwhile.

        Where a new release is refused before anything was charged for it, the folder is left as it was: also one that
        was empty, or not there, while no stage is done.
        """
        self._depth += 1
        try:
            if self._depth > 1:
                yield self
                return
            folder = self.work.folder
            folder.create()
            with folder.lock():
                if ((folder / STATE).read_bytes() if folder.is_run else None) != folder.written:
                    raise InputError(f"out: another shoal has worked in {self.path.name} meanwhile; run again")
                new = self._saved is None
                if new:
                    self._remember(self.state)  # from here on the folder is a run, even if this process is killed
                if self._rows is not None:
                    rows, path = self._rows, Path(self.state.source.path)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    put_whole(path, lambda rough: shutil.copyfile(rows.path, rough))
                before, files = self._saved, folder.snapshot()
                assert before is not None
                try:
                    yield self
                except ShoalError as error:
                    self._undo_refused_release(before, files)
                    # After a full disk, or without workers, which are no ValueErrors, there is something to go on with.
                    if new and not self.state.stages and isinstance(error, ValueError):
                        folder.clear()
                        self._saved = None
                    raise
        finally:
            self._depth -= 1
            if not self._depth:
                self.work.close_ledger()

    def _undo_refused_release(self, before: RunState, files: Snapshot) -> None:
        """Go back to before a release or a period that was refused, unless the ledger has it or cannot be asked."""
        new = self.state.release > before.release
        if self.has_released:
            try:
                ledger, name = self.work.ledger, self.release_name
                known = ledger.has(name) or ledger.recorded_crowds(name) is not None
            except ShoalError:
                known = True  # it may be
            if known:
                return
        if new:
            self.work.folder.put_back(f"earlier/{before.release}", files)
            self.work.state = self._saved = before
        elif self.state.releasing is not None:
            self._remember(replace(self.state, releasing=None))

    def _remember(self, state: RunState) -> None:
        self.work.folder.remember(state)
        self.work.state = self._saved = state

    def _forget(self, *stages: str, **changes: Any) -> None:
        left = {name: done for name, done in self.state.stages.items() if name not in stages}
        self._remember(replace(self.state, stages=left, **changes))

    def _configure(self, **settings: Any) -> None:
        self.work.state = replace(self.state, config=replace(self.config, **settings))

    def _say(self, stage: str, text: str, done: float, total: int) -> None:
        self.work.stage = stage
        self.work.tell(text, done, total)

    # ------------------------------------------------------------------ states

    @property
    def phase(self) -> str:
        """How far this release is: "new", "fitted", "planned", "begun" or "released"."""
        done = self.state.stages
        if "release" in done:
            return "released"
        if self.state.releasing is not None:
            return "begun"
        before = list(self.pipeline)[: list(self.pipeline).index("release")]
        return "planned" if all(name in done for name in before) else "fitted" if "fit" in done else "new"

    @property
    def has_released(self) -> bool:
        """Whether this folder has released, or may have: a release that was begun counts."""
        return self.phase in ("begun", "released")

    def everything(self, until: str = "report") -> None:
        """Every stage that is not done, up to one of them."""
        if until not in UNTIL:
            raise InputError(f"until must be one of {', '.join(UNTIL)}")
        with self.hold():
            self.do("fit")  # which may tell that a method is needed
            for stage in self._stages(until)[1:]:
                self.do(stage)

    def _stages(self, until: str) -> list[str]:
        """The stages of this run, up to one that ``--until`` names."""
        last = STAGES.index(UNTIL[until])
        return [name for name in self.pipeline if STAGES.index(name) <= last]

    def do(self, stage: str) -> None:
        """One stage, if it is not done; all before it must be."""
        with self.hold():
            if stage not in ("audit", "card", "report"):  # what a release rests on
                self._refuse_changes()
            if stage == "fit":
                self._prepare()
            if stage == "release" and not self.is_done(stage):
                self._replan()
            undone = self.next_stage(until=stage)
            if undone is None:
                self._say(stage, "already done", 1, 1)
                return
            if undone != stage:
                raise InputError(
                    f"dir: the stage {undone!r} comes before {stage!r} and is not done as now configured; "
                    f"run `shoal run --out {self.path.name}` for all of them"
                )
            if stage == "release":
                self._begin()
            self._do_stage(stage)

    def _do_stage(self, name: str) -> None:
        """Do the steps of a stage, and save its key, files and facts, so that it is not done again."""
        stage, work = self.pipeline[name], self.work
        self._say(name, stage.doing, 0, 0)
        begun = time.monotonic()
        outcome = stage.do(work)
        facts: Any = decode_facts(name, outcome.facts.to_json())  # as they will be read
        work.state = state = replace(work.state, config=outcome.settings or work.settings)
        if name == "fit":
            kind = choose_kind(state.config, facts)
            kind.check_rows(state.config, facts)
            work.state = state = replace(state, kind=kind.word)
        digests = {file: work.folder.digest(file) for file in outcome.files}
        seconds = round(time.monotonic() - begun, 3)
        stages = {**state.stages, name: Done(self.key(name), digests, seconds, _now(), facts)}
        if outcome.tables is not None:
            work.known_tables = stages[name], outcome.tables
        state = replace(state, stages={one: stages[one] for one in STAGES if one in stages})
        if name == "release" and state.ledger is not None:
            state = replace(state, releasing=None, ledger=replace(state.ledger, head=facts.head))
        self._remember(state)
        self.did.append(name)
        self._say(name, stage.doing, 1, 1)

    # ------------------------------------------------------------------ new to fitted

    def _prepare(self) -> None:
        """Compile what was never compiled here, sweep, and forget stages that lack shards, which may be mended."""
        compile_first(self._say, self.config)
        for folder in (self.path / SHARDS, self.path):  # nobody works in them yet
            sweep(folder)
        lists = [name for name in (FIT, DESIGN) if (self.path / name).is_file()]
        parts = [part for name in lists for part in self.work.listing(name).parts]
        lacks = self.work.facts.has_failed("fit", "design", "release") or any(find_shard(p.path) is None for p in parts)
        if lacks and not self.has_released:
            self._forget(*STAGES, releasing=None)  # what is there is passed over, shard by shard

    def _refuse_changes(self) -> None:
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
            if "release" in self.state.stages and self.work.facts.has_failed("design", "release"):
                self._forget("design", "audit", "release", releasing=key)  # what is mended is released under this name
        if self.state != self._saved:
            self._remember(self.state)

    def _difference(self) -> str:
        """What is not as it was when this folder released, in words."""
        before = self._saved or self.state
        names = dict.fromkeys(name for stage in self._stages("release") for name in self.pipeline[stage].settings)
        changed = [name for name in names if getattr(before.config, name) != getattr(self.config, name)]
        differences = [f"another {', '.join(changed)}"] if changed else []
        differences += ["another file"] if before.source.digest != self.state.source.digest else []
        return " and ".join(differences) or "another version of shoal"

    # ------------------------------------------------------------------ planned to begun

    def _replan(self) -> None:
        """Form crowds anew where something was recorded about the same labels since they were formed."""
        if not self.is_done("crowds"):
            return
        ledger, name = self.work.find_ledger(), self.release_name
        if ledger is not None and (ledger.recorded_crowds(name) is not None or ledger.has(name)):
            return
        labels = self.work.tables.members["label"].to_list()
        if Book.read(ledger, labels).digest != self.work.facts.plan.book:
            self._forget("crowds", "design", "audit")
            for stage in self._stages("audit")[1:]:
                self._do_stage(stage)

    def _begin(self) -> None:
        """Seal the ledger. What is refused here was not begun, and no ledger is made for it."""
        work = self.work
        self.kind.begin(work)
        # Written before the ledger is asked: a release that may have happened counts as one, and is the one of this
        # ledger.
        if not work.place.own and work.place.file is not None and not work.place.file.exists():
            self.new_ledger = work.place.where
        ledger = work.open_ledger(create=True)
        seal = Seal(ledger.identity, str(ledger.head), work.place.stored)
        if not work.alone:
            note_ledger(work.place)
        self._remember(replace(self.state, releasing=self.key("release"), ledger=seal))

    def check_ledger(self) -> None:
        """Before anything is done: is the ledger there, and the one it was?"""
        if self.state.ledger is not None:
            self.work.open_ledger()
            self.work.state = replace(self.state, ledger=replace(self.state.ledger, where=self.place.stored))

    # ------------------------------------------------------------------ released to new

    def go_on(self) -> None:
        """Go on with a new day, or period: put the last release aside; crowds stay as they are on record.

        In a new folder it begins. Asked for again with the same readings and settings, as after an interruption, it
        changes nothing.
        """
        with self.hold():
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
            self.work.open_ledger()
            fit = self.pipeline["fit"]
            fixed = [name for name in fit.settings if name not in fit.daily]
            differs = next((name for name in fixed if self.config.part(name) != before.config.part(name)), None)
            if differs is not None:
                raise InputError(
                    f"update: {differs} differs from that of the last release; crowds and their setting are permanent, "
                    "so leave it as it was"
                )
            if self._period is not None and self._period == before.config.period:
                raise InputError(
                    "period: the last release of this folder is about it. Every release needs a later period than the "
                    "last. Nothing was released",
                    argument="period",
                )
            for name in ("origin", "period"):  # those of the last release
                if getattr(self.config, name) == getattr(before.config, name):
                    self._configure(**{name: None})
            aside = f"earlier/{self.state.release}"
            files = [name for done in self.state.stages.values() for name in done.files]
            self.work.folder.archive([*files, BOARD, ANNEX, STATE, NUMBERS], aside)
            for name in (BOARD, ANNEX):  # they are about the last release, and no stage writes them anew
                (self.path / name).unlink(missing_ok=True)
            state = replace(
                self.state, release=self.state.release + 1, releasing=None, kind=choose_kind(self.config).word
            )
            self._remember(replace(state, stages={}, previous=aside, day=_now()[:10]))

    # ------------------------------------------------------------------ before a release

    def rehearse(self) -> None:
        """Everything up to the release, which is recorded, drawn and charged nowhere; any number of times."""
        self.kind.refuse("rehearse")
        with self.hold():
            if self.has_released:
                raise InputError(
                    f"rehearse: {self.path.name} has released. Rehearse in a folder of its own, any number of times: "
                    "crowds on record are used there too"
                )
            self.do("fit")
            self._forget("crowds")  # by what is on record now
            for stage in self._stages("audit")[1:]:
                self.do(stage)
            self.rehearsed_card = self.kind.rehearse(self.work)
            self.rehearsed = None if self.rehearsed_card is None else self.path / REHEARSAL

    def choose(self, *, at_most: float | str | None = None, error: float | str | None = None) -> Choice:
        """The crowd by the risk of being named, or by the error that one can bear: see :func:`shoal.choose`."""
        name = "at_most" if at_most is not None else "within"
        self.kind.refuse(name)
        if (at_most is None) == (error is None):
            raise InputError(
                "at_most and within: give one of them, the risk of being named or the error that can be borne"
            )
        with self.hold():
            if not self.has_released:
                self.do("fit")
            self.kind.refuse(name)  # a table's rows may have decided it
            self._say("choose", "rehearsing", 0, 0)
            if at_most is not None:
                choice = by_risk(rehearse_days(self.work, days=False), parse_naming_risk(at_most))
            else:
                choice = by_error(rehearse_days(self.work), share(error if error is not None else ""))
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


def compile_first(tell: Progress, config: Config) -> None:
    """On the first run on a machine, say so and compile the kernels, before workers would all do it at once.

    Means of crowds need no accounting: its kernels are the larger part, and are left to the first run with an ε.
    """
    rooms = ["crowds"] if config.label is not None else ["arma", "crowds"]
    if config.charged or config.declares:
        rooms.append("accounting")
    if config.method is not None and config.method in METHODS and METHODS[config.method].timed:
        rooms.append("designs")
    if warmup.compile_kernels(lambda words: tell("compile", words, 0, 0), rooms=rooms):
        tell("compile", warmup.WORDS, 1, 1)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
