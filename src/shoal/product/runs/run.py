"""A run: stages over one folder, each done once, in order, whatever interrupts them.

Which stages there are is a matter of the kind of release (:mod:`shoal.product.runs.kinds`). Nothing is charged before
all that can fail has been seen to work.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.designs.methods import METHODS
from shoal.errors import InputError, ShoalError
from shoal.numerics import warmup
from shoal.plaintext import html_sections
from shoal.product.card.card import ReleaseCard
from shoal.product.runs import crowd_stage
from shoal.product.runs.config import Config, split_settings
from shoal.product.runs.crowd_blocks import WorstCurve, prove_shards, worst_curve, worst_frontier
from shoal.product.runs.crowd_choice import (
    Choice,
    choose_by_error,
    choose_by_risk,
    parse_error_share,
    parse_naming_risk,
    rehearse_days,
)
from shoal.product.runs.crowd_rows import NUMBERS
from shoal.product.runs.fit_stage import horizon_in_steps
from shoal.product.runs.folder import (
    CSV,
    DESIGN,
    FIT,
    LEDGER,
    PARQUET,
    PUBLIC,
    SHARDS,
    STAGES,
    STATE,
    Done,
    Folder,
    Progress,
    RunState,
    decode_facts,
    source_of,
)
from shoal.product.runs.kinds import choose_kind
from shoal.product.runs.kinds.averages import REHEARSAL
from shoal.product.runs.kinds.kind import PACKAGE, PUBLIC_REPORT, REPORT, handing_statements
from shoal.product.runs.owner_ledger import IN_FOLDER, Book, Seal, ledger_place_of
from shoal.product.runs.shards import find_shard, remove_unfinished, write_shard_file
from shoal.product.runs.stage_work import Work

if TYPE_CHECKING:
    import polars as pl

    from shoal.designs.comparison import Comparison
    from shoal.product.sources.frames import ScratchFile
    from shoal.proofs.proof import Proof

#: What a run can be stopped after -> its last stage.
UNTIL = {"fit": "crowds", "design": "design", "audit": "audit", "release": "release", "report": "report"}
#: Releases about the same labels, of overlapping histories, are not independent given the label under ``marginal``,
#: while the ledger composes releases as independent.
ONCE = (
    "query: under 'marginal' the history's own randomness protects a label, and it does so once. A second release "
    "about the same labels would not be independent of the first, and its cost is not known; use 'point' or "
    "'trajectory' for repeated releases"
)
#: The pages of :meth:`Run.explain`.
BOARD, ANNEX = "board.html", "annex.html"
#: Files that a user looks for, and what they are.
FILES = {
    REPORT: "the report, for the data owner: it shows true answers",
    PACKAGE: "public/ is what to share, a data package: columns, units, licence, guarantee",
    PUBLIC_REPORT: "the report to share: the table and its card, without names and true answers",
    PUBLIC: "the released figures, to share: no names",
    CSV: "the same with the name behind each row: your key, keep it private (also .parquet)",
    "card.md": "the release card, to publish with the figures (also .json)",
    crowd_stage.LEFT_OUT: "who has no row in it, and why",
    LEDGER: "crowds and what was spent; keep it, and keep it private: it is as private as the readings",
}


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
    """Do all that the command ``shoal run`` does: from a file to a table that may be shared, its card and its report.

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
    with one.hold_folder():
        one.check_ledger()
        if update and not rehearse:
            one.begin_next_release()
        if asks:
            one.take_choice(one.choose(at_most=at_most, error=within))
        if rehearse:
            one.rehearse()
        else:
            one.do_all_stages(until)
    return one


class Run:
    """One folder and what has been done in it.

    ``Run(folder)`` continues the run that is there; with a ``source``, a new or empty folder becomes one. Nothing is
    written before a stage is done. ``settings`` are fields of :class:`shoal.Config` and ``Speed``, on top of
    ``config`` or of what the folder has.
    """

    rehearsed_card: ReleaseCard | None = None  #: of a rehearsal, as it would be
    new_ledger: str | None = None  #: where the owner's ledger was begun for this release, as there was none
    choice: Choice | None = None  #: the crowd that was asked for in other words, where it was

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
        self.work = work = Work(folder, speed, horizon, progress)
        self.did: list[str] = []  #: stages that were done since the folder was opened
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
            chosen = replace(chosen, ledger=ledger_place_of(chosen.ledger).stored)
        self._rows: ScratchFile | None = None
        self._period = given.get("period")
        state = None if saved is None else replace(saved, config=chosen)
        if source is not None:
            read, self._rows = source_of(source, folder.path / SHARDS / "source", table=chosen.label is not None)
            new = RunState(read, chosen, created=_now(), run=uuid.uuid4().hex, day=_now()[:10])
            state = new if state is None else replace(state, source=read)
        assert state is not None
        fit = state.facts.fit
        chosen = horizon_in_steps(chosen, horizon, None if fit is None else fit.step_minutes)
        work.state = replace(state, config=chosen, kind=choose_kind(chosen, fit).word)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open the run in a folder, to look at or to continue.

        Returns:
            The run as its folder has it; nothing is computed.

        >>> run = Run.open("january")  # doctest: +SKIP
        >>> run.card.statement  # doctest: +SKIP
        """
        if not Folder(folder).is_run:
            Folder(folder).state()  # says why
        return cls(folder)

    def __repr__(self) -> str:
        """The folder and how far it is; nothing of what is in it."""
        far = f"done until {list(self.state.stages)[-1]}" if self.state.stages else "nothing done"
        return f"{type(self).__name__}({self.path.name!r}, release {self.state.release}, {far})"

    def _repr_html_(self) -> str:
        """The summary, for the owner."""
        return html_sections(repr(self), self.summary())

    @property
    def path(self) -> Path:
        return self.work.path

    @property
    def state(self) -> RunState:
        return self.work.state

    @property
    def config(self) -> Config:
        return self.work.settings

    # ------------------------------------------------------------------ the folder

    @contextmanager
    def hold_folder(self) -> Iterator[Run]:
        """Hold the folder for this process; another one is refused meanwhile.

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
                    write_shard_file(path, lambda rough: shutil.copyfile(rows.path, rough))
                before, files = self._saved, folder.names()
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

    def _undo_refused_release(self, before: RunState, files: set[str]) -> None:
        """Go back to before a refused release, unless the ledger has it or cannot be asked."""
        new = self.state.release > before.release
        if self.has_released:
            try:
                ledger, name = self.work.ledger, self.work.release_name
                known = ledger.has(name) or ledger.recorded_crowds(name) is not None
            except ShoalError:
                known = True  # it may be
            if known:
                return
        if new:
            self.work.folder.roll_back_files(f"earlier/{before.release}", files)
            self.work.state = self._saved = before
        elif self.state.releasing is not None:
            self._remember(replace(self.state, releasing=None))

    def _remember(self, state: RunState) -> None:
        """Write the state to the folder, and go on with it."""
        self.work.folder.write_state(state)
        self.work.state = self._saved = state

    def _forget(self, *stages: str, **changes: Any) -> None:
        """Forget that some stages are done, and change other fields of the state."""
        left = {name: done for name, done in self.state.stages.items() if name not in stages}
        self._remember(replace(self.state, stages=left, **changes))

    def _configure(self, **settings: Any) -> None:
        """Change some settings, which are written with the next stage."""
        self.work.state = replace(self.state, config=replace(self.config, **settings))

    def _report(self, stage: str, text: str, done: float, total: int) -> None:
        """Report progress under the name of a stage."""
        self.work.stage = stage
        self.work.report(text, done, total)

    # ------------------------------------------------------------------ states

    @property
    def has_released(self) -> bool:
        """Whether this folder has released, or may have: a release that was begun counts."""
        return self.state.release_key is not None

    def is_done(self, stage: str) -> bool:
        """Return whether a stage and all that it rests on are done, as now configured, and their files intact."""
        return stage in self.work.pipeline and self.work.first_undone(until=stage) is None

    def require_stages(self, *stages: str) -> None:
        """Raise InputError unless these stages are done."""
        for stage in stages:
            if stage not in self.state.stages:
                raise InputError(f"dir: the stage {stage!r} of {self.path.name} is not done; run `shoal run` on it")

    def do_all_stages(self, until: str = "report") -> None:
        """Do every stage that is not done, up to one of them."""
        if until not in UNTIL:
            raise InputError(f"until must be one of {', '.join(UNTIL)}")
        with self.hold_folder():
            self.do("fit")  # which may tell that a method is needed
            for stage in self._stages_until(until)[1:]:
                self.do(stage)

    def _stages_until(self, until: str) -> list[str]:
        """Return the stages of this run, up to one that ``--until`` names."""
        last = STAGES.index(UNTIL[until])
        return [name for name in self.work.pipeline if STAGES.index(name) <= last]

    def do(self, stage: str) -> None:
        """Do one stage, if it is not done; all before it must be."""
        with self.hold_folder():
            if stage not in ("audit", "card", "report"):  # what a release rests on
                self._refuse_changes()
            if stage == "fit":
                self._prepare_first_stage()
            if stage == "release" and not self.is_done(stage):
                self._form_crowds_anew()
            undone = self.work.first_undone(until=stage)
            if undone is None:
                self._report(stage, "already done", 1, 1)
                return
            if undone != stage:
                raise InputError(
                    f"dir: the stage {undone!r} comes before {stage!r} and is not done as now configured; "
                    f"run `shoal run --out {self.path.name}` for all of them"
                )
            if stage == "release":
                self._begin_release()
            self._perform_stage(stage)

    def _perform_stage(self, name: str) -> None:
        """Do a stage, and save its key, files and facts, so that it is not done again."""
        stage, work = self.work.pipeline[name], self.work
        self._report(name, stage.doing, 0, 0)
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
        stages = {**state.stages, name: Done(work.stage_keys(name)[name], digests, seconds, _now(), facts)}
        if outcome.tables is not None:
            work.known_tables = stages[name], outcome.tables
        state = replace(state, stages={one: stages[one] for one in STAGES if one in stages})
        if name == "release" and state.ledger is not None:
            state = replace(state, releasing=None, ledger=replace(state.ledger, head=facts.head))
        self._remember(state)
        self.did.append(name)
        self._report(name, stage.doing, 1, 1)

    # ------------------------------------------------------------------ new to fitted

    def _prepare_first_stage(self) -> None:
        """Compile what was never compiled here, remove unfinished files, and forget stages that lack shards."""
        compile_kernels_first(self._report, self.config)
        for folder in (self.path / SHARDS, self.path):  # nobody works in them yet
            remove_unfinished(folder)
        lists = [self.work.read_listing(name) for name in (FIT, DESIGN) if (self.path / name).is_file()]
        used = [*(part for listing in lists for part in listing.parts), *(lists[-1].inputs if len(lists) > 1 else ())]
        if all(find_shard(part.path) is not None for part in used):
            return
        if not self.has_released:
            self._forget(*STAGES, releasing=None)  # what is there is passed over, shard by shard
        elif "release" not in self.state.stages:
            self._forget("design", "audit")  # what is mended is released under this name

    def _refuse_changes(self) -> None:
        """Raise InputError where something that a release rests on has changed since it was begun.

        A release that was begun and interrupted is continued, since the ledger gives the same answers again.
        """
        before = self.state.release_key if "fit" in self.state.stages else None
        if before is not None and self.work.stage_keys("release")["release"] != before:
            raise InputError(
                f"dir: {self.path.name} has released, and this is {self._describe_changes()}. Nothing was changed. "
                "What is new about the same labels takes a later period: update=True goes on with a new day or "
                "table; or name a new folder; their crowds are used in both"
            )
        if self.state != self._saved:
            self._remember(self.state)

    def _describe_changes(self) -> str:
        """Return in words what is not as it was when this folder released."""
        before = self._saved or self.state
        names = dict.fromkeys(
            name for stage in self._stages_until("release") for name in self.work.pipeline[stage].settings
        )
        changed = [name for name in names if getattr(before.config, name) != getattr(self.config, name)]
        differences = [f"another {', '.join(changed)}"] if changed else []
        differences += ["another file"] if before.source.digest != self.state.source.digest else []
        return " and ".join(differences) or "another version of shoal"

    # ------------------------------------------------------------------ planned to begun

    def _form_crowds_anew(self) -> None:
        """Form crowds anew where something was recorded about the same labels since they were formed."""
        if not self.is_done("crowds"):
            return
        ledger, name = self.work.find_ledger(), self.work.release_name
        if ledger is not None and (ledger.recorded_crowds(name) is not None or ledger.has(name)):
            return
        labels = self.work.tables.members["label"].to_list()
        if Book.read(ledger, labels).digest != self.work.facts.plan.book:
            self._forget("crowds", "design", "audit")
            for stage in self._stages_until("audit")[1:]:
                self._perform_stage(stage)

    def _begin_release(self) -> None:
        """Seal the ledger and write the key of the release: from here on it may have happened."""
        work = self.work
        self.work.kind.refuse_unfit_release(work)
        # Written before the ledger is asked: a release that may have happened counts as one, and is the one of this
        # ledger.
        if not work.place.is_in_folder and work.place.file is not None and not work.place.file.exists():
            self.new_ledger = work.place.where
        ledger = work.open_ledger(create=True)
        seal = Seal(ledger.identity, str(ledger.head), work.place.stored)
        self._remember(replace(self.state, releasing=self.work.stage_keys("release")["release"], ledger=seal))

    def check_ledger(self) -> None:
        """Raise LedgerError unless the ledger that this run was charged to is there, and the same."""
        if self.state.ledger is not None:
            self.work.open_ledger()
            self.work.state = replace(self.state, ledger=replace(self.state.ledger, where=self.work.place.stored))

    # ------------------------------------------------------------------ released to new

    def begin_next_release(self) -> None:
        """Begin a new day, or period: put the last release aside; crowds stay as they are on record.

        In a new folder it begins. Asked for again with the same readings and settings, as after an interruption, it
        changes nothing.
        """
        with self.hold_folder():
            before = self._saved
            assert before is not None  # the folder is held
            if not before.stages and not self.has_released:
                return
            same = before.source.digest == self.state.source.digest
            interrupted = before.previous is not None and "release" not in before.stages
            if same and (interrupted or self.work.stage_keys("release")["release"] == before.release_key):
                return
            if "release" not in before.stages:
                raise InputError("update: the last release of this folder is not finished; finish it without")
            if "marginal" in (before.config.query, self.config.query):
                raise InputError(ONCE)
            self.work.open_ledger()
            fit = self.work.pipeline["fit"]
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
            self.work.folder.copy_aside([*files, BOARD, ANNEX, STATE, NUMBERS], aside)
            for name in (BOARD, ANNEX):  # they are about the last release, and no stage writes them anew
                (self.path / name).unlink(missing_ok=True)
            state = replace(
                self.state, release=self.state.release + 1, releasing=None, kind=choose_kind(self.config).word
            )
            self._remember(replace(state, stages={}, previous=aside, day=_now()[:10]))

    # ------------------------------------------------------------------ before a release

    def rehearse(self) -> None:
        """Do everything up to the release, which is recorded, drawn and charged nowhere; any number of times."""
        self.work.kind.refuse_missing("rehearse")
        with self.hold_folder():
            if self.has_released:
                raise InputError(
                    f"rehearse: {self.path.name} has released. Rehearse in a folder of its own, any number of times: "
                    "crowds on record are used there too"
                )
            self.do("fit")
            self._forget("crowds")  # by what is on record now
            for stage in self._stages_until("audit")[1:]:
                self.do(stage)
            self.rehearsed_card = self.work.kind.rehearse(self.work)

    def choose(self, *, at_most: float | str | None = None, error: float | str | None = None) -> Choice:
        """Choose the crowd by the risk of being named, or by the error that one can bear: see :func:`shoal.choose`."""
        name = "at_most" if at_most is not None else "within"
        self.work.kind.refuse_missing(name)
        if (at_most is None) == (error is None):
            raise InputError(
                "at_most and within: give one of them, the risk of being named or the error that can be borne"
            )
        with self.hold_folder():
            if not self.has_released:
                self.do("fit")
            self.work.kind.refuse_missing(name)  # a table's rows may have decided it
            self._report("choose", "rehearsing", 0, 0)
            if at_most is not None:
                choice = choose_by_risk(rehearse_days(self.work, days=False), parse_naming_risk(at_most))
            else:
                choice = choose_by_error(
                    rehearse_days(self.work), parse_error_share(error if error is not None else "")
                )
            self._report("choose", "rehearsing", 1, 1)
        return choice

    def take_choice(self, choice: Choice) -> None:
        """Make the crowd that was chosen the setting of this folder, and keep why."""
        if self.has_released and choice.crowd != self.config.crowd:
            raise InputError(
                f"crowd: {self.path.name} has released with crowds of at least {self.config.crowd}, and now "
                f"{choice.crowd} would be chosen ({choice.goal}). Leave at_most= and within= out, or name a new "
                "folder. Nothing was released"
            )
        self.choice = choice
        self._configure(crowd=choice.crowd)

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 4 after an audit that found a violation, or 0."""
        audit = self.work.facts.audit
        return 4 if audit is not None and audit.verdict == "violated" and self.is_done("audit") else 0

    # ------------------------------------------------------------------ what was released

    @property
    def card(self) -> ReleaseCard:
        """The release card: of averages, of what a method released under an ε, or of noisy readings."""
        names = list(self.work.pipeline)
        self.require_stages(*names[: names.index("card")])
        return self.card_so_far

    @property
    def card_so_far(self) -> ReleaseCard:
        """The card of the stages that are done."""
        return self.work.kind.card(self.work) if self.rehearsed_card is None else self.rehearsed_card

    @property
    def released(self) -> pl.DataFrame:
        """The released table, with the label of each row.

        Of meters: household, crowd, members, step, timestamp, kw. Of a table: label, crowd, members and its columns. A
        figure that would break a rule of a row is missing. A method's release has a row per home or sample: crowd, …
        """
        import polars as pl

        self.require_stages("release")
        return pl.read_parquet(self.path / PARQUET)

    @property
    def report(self) -> Path:
        """The page for the data owner; it shows true answers."""
        self.require_stages("report")
        return self.path / REPORT

    def reader(self, row: int | Sequence[float]) -> pl.DataFrame:
        """Return, for the owner, how far homes lie from a row, by step; one law pooled over all crowds of the release.

        It is computed from members' own figures and outside the rules of a row. Someone who has it, the rows and the
        other members' figures knows a constant load to a range of 0.05 kW (docs/sharp-edges.md): share it as readings.

        Args:
            row: the number of a crowd, or the figures of its row as they were released.

        Returns:
            entry, row, and below_10 … below_90: the figures below which so many percent of homes lie. It is never a
            crowd's own spread.

        >>> run.reader(123456)  # doctest: +SKIP
        """
        self.require_stages("release")
        return self.work.kind.reader(self.work, row)

    def compare(self, epsilon: float = 1.0, delta: float = 1e-5) -> Comparison:
        """Compare ways to protect the labels of this run at (ε, δ), each in its crowd; nothing is recorded."""
        import polars as pl

        from shoal.designs.comparison import compare_with_averages

        self.require_stages("crowds")
        both = self.work.tables.members.filter(pl.col("value").is_not_null() & ~pl.col("waits"))
        values = both["value"].to_numpy()
        crowd = both["crowd"].rank("dense").cast(pl.Int64).to_numpy()  # new crowds have numbers below zero
        return compare_with_averages(self.work.input.in_error_units(values), crowd, epsilon, delta)

    def curve(self, epsilon: Sequence[float], notion: str = "dp") -> WorstCurve:
        """Return δ(ε) over all pairs of the run: of what is released ("dp"), or the ideal laws under another notion."""
        self._demand_method()
        return worst_curve(self.work, epsilon, notion)

    def frontier(
        self, rho: Sequence[float], methods: Sequence[str], *, epsilon: float | None = None, search: int = 10
    ) -> dict[str, list[float]]:
        """Return method -> the δ that each budget, ascending, leaves in the worst crowd of the run."""
        self._demand_method()
        return worst_frontier(self.work, rho, methods, epsilon, search)

    def prove(self, *, epsilon: float | None = None, scope: str | None = None) -> dict[str, Proof]:
        """Return a proof of every shard, written to ``proof/``; by default at the ε and scope of its design."""
        self._demand_method()
        return prove_shards(self.work, epsilon, scope)

    def _demand_method(self) -> None:
        """Raise InputError unless something with an ε was designed."""
        self.work.kind.refuse_missing("proof")
        self.require_stages("design")

    def explain(self, purpose: str = "", attack: str | Path | None = None) -> tuple[Path, Path]:
        """Write one page for a board and an annex for a regulator, from the card; return their paths.

        ``attack`` is the attack.json of a study (`shoal attack`), whose findings both pages then have.
        """
        from shoal.product.card.render import board_page, regulator_annex
        from shoal.product.studies.findings import Study

        card, title, day = self.card, self.config.title, self.work.released_on
        study = None if attack is None else Study.load(attack)
        return (
            self.work.folder.write_content(BOARD, board_page(card, title=title, made=day, study=study)),
            self.work.folder.write_content(
                ANNEX, regulator_annex(card, purpose=purpose, title=title, made=day, study=study)
            ),
        )

    # ------------------------------------------------------------------ what to say about it

    def to_dict(self) -> dict[str, Any]:
        """Return what the folder holds, for machines."""
        seal, undone = self.state.ledger, self.work.first_undone()
        names = list(self.work.pipeline)
        done = names if undone is None else names[: names.index(undone)]
        return {
            "folder": str(self.path),
            "did": list(self.did),
            "release": self.state.release,
            "ledger": {"where": self.work.place.where, "identity": seal and seal.identity, "head": seal and seal.head},
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
        """Return the run for people: headings with their sentences; five of them, or with ``verbose`` everything."""
        from shoal.product.card.render import summary

        work, facts, parts = self.work, self.work.facts, list[tuple[str, list[str]]]()
        if facts.people is not None:
            parts = summary(self.card_so_far, handing_statements(work), verbose=verbose)
        work.kind.add_sentences(work, parts, new=bool(self.did))
        if facts.audit is not None and facts.audit.verdict == "violated":
            parts.insert(0, ("Violated", ["The audit found more than is promised. Do not use this release."]))
        if self.rehearsed_card is not None:
            where = f"{self.path / REHEARSAL} has what would be."
            parts.insert(0, ("Not released", [f"A rehearsal: nothing was released, recorded or charged. {where}"]))
        elif work.state.release_key is None and facts.people is not None:
            parts.insert(0, ("Not released", ["Nothing was released, recorded or charged."]))
        if self.new_ledger is not None:
            parts.append(("Ledger", [f"There was none, so one was begun: {self.new_ledger}. Keep it."]))
        if self.choice is not None:
            parts.append(("Chosen", self.choice.sentences()))
        if not verbose:
            return parts
        spent = "crowds and everything that is charged about the same labels are on record here"
        if work.place.is_in_folder:
            spent = "of this folder only" + ("; no real person is behind it" if work.source.simulated else "")
        parts.append(("Ledger", [f"{work.place.where}: {spent}."]))
        if work.timings:
            each = ", ".join(f"{name} {value:.1f} s" for name, value in work.timings.items())
            parts.append(("Time", [f"{each}; {sum(work.timings.values()):.0f} s in all."]))
        files = [f"{work.path / name}: {text}" for name, text in FILES.items() if (work.folder / name).is_file()]
        return [*parts, ("Files", files)] if files else parts


def compile_kernels_first(tell: Progress, config: Config) -> None:
    """Compile the kernels on the first run on a machine, and say so, before workers would all do it at once.

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
    """Return the present instant in UTC, ISO 8601 in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
