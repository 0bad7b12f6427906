"""A run: stages over one folder, each done once, in order, whatever interrupts them.

| stage | reads | writes |
| --- | --- | --- |
| fit | the meter files | forecasts.zip, graph.json, truth.npy, quality.csv |
| design | forecasts, graph | mechanism.shoal |
| release | mechanism, forecasts | ledger.db, released.csv, released.parquet |
| audit | mechanism, forecasts | audit.json, guard.json |
| card | all of these | card.json, card.md, card.yaml |
| report | all of these | report.html |

A stage is known by a key: the digest of its settings, of the files it reads and of shoal's version. Where the state
has the stage with this key and its files are intact, it is not done again. The release is never done again because
something changed: that takes ``again=True``, and is charged.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import shoal
from shoal.engine import preview
from shoal.engine.config import Config
from shoal.engine.folder import STATE, Done, Folder, State, without
from shoal.engine.whole import Whole
from shoal.errors import InputError
from shoal.files import digest_of
from shoal.mechanism import Mechanism

#: Stage -> the stages whose files it reads.
NEEDS = {
    "fit": (),
    "design": ("fit",),
    "release": ("fit", "design"),
    "audit": ("fit", "design"),
    "card": ("fit", "design", "release", "audit"),
    "report": ("fit", "design", "release", "audit", "card"),
}

#: Stage -> what it is doing, in words.
DOING = {
    "fit": "reading meters",
    "design": "designing the mechanism",
    "release": "releasing through the ledger",
    "audit": "attacking released answers",
    "card": "writing the release card",
    "report": "writing the report",
}

#: Settings of the fit that may differ from day to day.
DAILY = ("origin", "refit_days", "drift_level")

#: Called with (stage, what is happening, done, total); total 0 where it is not known.
Progress = Callable[[str, str, int, int], None]

#: The files that a stage wrote, and what to tell about it.
Made = tuple[list[str], dict[str, Any]]


class Pipeline(Protocol):
    """How the stages are done: in one piece, or over shards. ``settings`` are those that each stage depends on."""

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> Mapping[str, tuple[str, ...]]: ...
    def fit(self, run: Run) -> Made: ...
    def design(self, run: Run) -> Made: ...
    def release(self, run: Run) -> Made: ...
    def audit(self, run: Run) -> Made: ...
    def card(self, run: Run) -> Made: ...
    def report(self, run: Run) -> Made: ...
    def hardest(self, folder: Folder) -> Mechanism:
        """The mechanism with the worst edge, for a preview of what a new release costs."""
        ...

    def lacking(self, run: Run) -> bool:
        """Whether something of finished stages failed or is gone, so that doing them again may mend it."""
        ...


class Run:
    """One folder and what has been done in it. Made by :meth:`start` and :meth:`open`."""

    def __init__(
        self, folder: Folder, state: State, progress: Progress | None = None, pipeline: Pipeline | None = None
    ) -> None:
        self.folder = folder
        self.state = state
        self.pipeline = pipeline or Whole()
        self._saved = folder.state() if folder.is_run else None
        self.config = Config.from_dict(state.config, "state.json")
        self.progress = progress
        self.did: list[str] = []

    @classmethod
    @contextmanager
    def start(
        cls,
        out: str | Path,
        source: dict[str, Any] | None,
        config: Config | None = None,
        progress: Progress | None = None,
        pipeline: Pipeline | None = None,
    ) -> Iterator[Run]:
        """Begin a run in a new or empty folder, or continue the one that is there, and hold the folder meanwhile.

        ``config`` None keeps the settings that are there; ``source`` None keeps the readings.
        """
        folder = Folder(out)
        if not folder.is_run and source is None:
            raise InputError(f"meters: {folder.path.name} is not a shoal run yet; name a meter file")
        folder.create()
        with folder.locked():
            if folder.is_run:
                old = folder.state()
                settings = old.config if config is None else config.to_dict()
                state = replace(old, source=source or old.source, config=settings)
            else:
                settings = (config or Config()).to_dict()
                state = State(source=source or {}, config=settings, created=_now(), run=uuid.uuid4().hex)
            run = cls(folder, state, progress, pipeline)
            if not folder.is_run:
                run._remember(state)  # from here on the folder is a run, however it ends
            yield run

    @classmethod
    @contextmanager
    def open(
        cls, path: str | Path, progress: Progress | None = None, pipeline: Pipeline | None = None
    ) -> Iterator[Run]:
        """The run in a folder."""
        folder = Folder(path)
        folder.state()
        with cls.start(path, None, None, progress, pipeline) as run:
            yield run

    # ------------------------------------------------------------------ stages

    def everything(self, *, again: bool = False) -> None:
        """Every stage that is not done."""
        self._settle(again)
        self.fit()
        self.design()
        self.release()
        self.audit()
        self.card()
        self.report()

    def go_on(self) -> None:
        """Take the readings that were named for a new day: put the last release aside and go on from its forecasts.

        Asked for again with the same readings, as after an interruption, it changes nothing.
        """
        if self.pipeline.name != "sharded":
            raise InputError("update: only a run in shards goes on from day to day; begin it with --engine")
        before = self._saved
        if before is not None and before.previous and before.source.get("digest") == self.state.source.get("digest"):
            return
        if before is None or "design" not in before.stages:
            raise InputError("update: this folder has no forecasts and design to go on from; run it without --update")
        if before.source.get("digest") == self.state.source.get("digest"):
            raise InputError("update: name the file with the new readings")
        if "release" not in before.stages:
            raise InputError("update: the last release of this folder is not finished; finish it without --update")
        self._refuse_dependent()
        settings, old = self.config.to_dict(), before.config
        fixed = [name for name in self.pipeline.settings["fit"] if name not in DAILY and settings[name] != old[name]]
        if fixed:
            raise InputError(
                f"update: {fixed[0]} differs from that of the last release; forecasts go on and groups stay as they "
                "are, so this takes a new folder"
            )
        if self.config.origin is not None and self.config.origin == old["origin"]:
            settings["origin"] = None  # that of the last release
            self.config = Config.from_dict(settings, STATE)
        aside = f"earlier/{self.state.release}"
        self._archive(aside)
        state = replace(self.state, config=settings, stages={}, release=self.state.release + 1, releasing=None)
        self._remember(replace(state, previous=aside))

    def fit(self, *, again: bool = False) -> None:
        self._settle(again)
        if self.pipeline.lacking(self):
            # What is there is passed over, shard by shard; a release goes on under its own name.
            begun = self.key("release") if self.released else None
            self._remember(replace(without(self.state, "fit", "design", "release"), releasing=begun))
        self._stage("fit", self.pipeline.fit)

    def design(self, *, again: bool = False) -> None:
        self._settle(again)
        self._stage("design", self.pipeline.design)

    def release(self, *, again: bool = False) -> None:
        """Release every answer through the ledger. With ``again``, a new release, charged, where there is one."""
        self._settle(again)
        self.require("release")
        if not self.is_done("release"):
            # Written before the ledger is asked: a release that may have happened counts as one.
            self._remember(replace(self.state, releasing=self.key("release")))
        self._stage("release", self.pipeline.release)

    def audit(self) -> None:
        self._stage("audit", self.pipeline.audit)

    def card(self) -> None:
        self._stage("card", self.pipeline.card)

    def report(self) -> None:
        self._stage("report", self.pipeline.report)

    @property
    def release_name(self) -> str:
        """The name under which the ledger is asked: that of this release of this folder."""
        return f"run {self.state.run} release {self.state.release}"

    # ------------------------------------------------------------------ what is done

    def key(self, stage: str) -> str:
        """The digest of all that goes into a stage."""
        made_from: dict[str, Any] = {
            "stage": stage,
            "shoal": shoal.__version__,
            "pipeline": self.pipeline.name,
            "settings": self.config.part(*self.pipeline.settings[stage]),
        }
        if self.pipeline.name == "sharded" and stage in ("design", "release"):
            # Lists of shards change when a failed one is mended; what each shard is made from is in its own name.
            made_from["stages"] = {name: self.key(name) for name in NEEDS[stage]}
        else:
            known = self.state.stages
            made_from["files"] = {name: known[name].files for name in NEEDS[stage] if name in known}
        if stage == "fit":
            made_from["source"] = self.state.source["digest"]
            made_from["previous"] = self.state.previous
        if stage == "release":
            made_from["release"] = self.state.release
        return digest_of(made_from)

    def is_done(self, stage: str) -> bool:
        """Whether a stage and all that it rests on are done, as now configured, and their files intact."""
        done = self.state.stages.get(stage)
        return (
            all(self.is_done(name) for name in NEEDS[stage])
            and done is not None
            and done.key == self.key(stage)
            and self.folder.intact(done)
        )

    @property
    def released(self) -> bool:
        """Whether this folder has released, or may have: a release that was begun counts."""
        return "release" in self.state.stages or self.state.releasing is not None

    def facts(self, stage: str) -> dict[str, Any]:
        """What a finished stage has to tell; empty where it is not done."""
        done = self.state.stages.get(stage)
        return dict(done.facts) if done is not None else {}

    # ------------------------------------------------------------------ how it is done

    def _stage(self, stage: str, work: Callable[[Run], Made]) -> None:
        self.require(stage)
        text = DOING[stage]
        if self.is_done(stage):
            self._tell(stage, "already done", 1, 1)
            return
        self._tell(stage, text, 0, 0)
        begun = time.monotonic()
        files, facts = work(self)
        digests = {name: self.folder.digest(name) for name in files}
        done = Done(self.key(stage), digests, round(time.monotonic() - begun, 3), _now(), facts)
        stages = {**self.state.stages, stage: done}
        self._remember(
            replace(self.state, stages=stages, releasing=None if stage == "release" else self.state.releasing)
        )
        self.did.append(stage)
        self._tell(stage, text, 1, 1)

    def require(self, stage: str) -> None:
        """Raise unless all that comes before a stage is done."""
        missing = next((name for name in NEEDS[stage] if not self.is_done(name)), None)
        if missing is not None:
            where = self.folder.path.name
            raise InputError(
                f"dir: the stage {missing!r} comes before {stage!r} and is not done as now configured; "
                f"run `shoal {missing} {where}`, or `shoal run --out {where}` for all of them"
            )

    def _settle(self, again: bool) -> None:
        """Before fit, design or release: refuse to redo what a release rests on, unless a new one is wanted.

        A release that was begun and interrupted is continued, since the ledger gives the same answers again.
        """
        if self.released:
            recorded = self.state.stages.get("release")
            made = self.state.releasing if recorded is None else recorded.key
            there = self.pipeline.name == "sharded" or self.is_done("design")
            same = there and self.key("release") == made
            if not same and not again:
                raise InputError(preview.refusal(self))
            if again and (recorded is not None or not same):
                self._refuse_dependent()
                self._put_aside()
        if self.state != self._saved:
            self._remember(self.state)

    def _refuse_dependent(self) -> None:
        """A release under ``marginal`` counts the history's randomness as protection, which works once.

        Another release about the same households, of the same or an overlapping history, is not independent of it given
        the household, while the ledger composes releases as independent.
        """
        before = self._saved.config.get("query") if self._saved is not None else None
        if "marginal" in (before, self.facts("design").get("query"), self.config.query):
            raise InputError(
                "query: under 'marginal' the history's own randomness protects a household, and it does so once. A "
                "second release about the same households would not be independent of the first, and its cost is not "
                "known; use 'point' or 'trajectory' for repeated releases"
            )

    def _put_aside(self) -> None:
        """Copy the files of the release to earlier/, and count the next one."""
        self._archive(f"earlier/{self.state.release}")
        gone = without(self.state, "release", "audit", "card", "report")
        self._remember(replace(gone, release=self.state.release + 1, releasing=None))
        preview.adopt(self)

    def _archive(self, under: str) -> None:
        files = [name for done in self.state.stages.values() for name in done.files]
        self.folder.archive([*files, STATE], under)

    def _remember(self, state: State) -> None:
        self.folder.remember(state)
        self.state = self._saved = state

    def counted(self, stage: str, text: str) -> Callable[[int, int], None]:
        """Takes (done, total) of a stage that does one thing."""
        return lambda done, total: self._tell(stage, text, done, total)

    def told(self, stage: str) -> Callable[[str, int, int], None]:
        """Takes (what is happening, done, total) of a stage that does several things."""
        return lambda text, done, total: self._tell(stage, text, done, total)

    def _tell(self, stage: str, text: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, text, done, total)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
