"""What the folder of a run holds: its stages and their facts, card, tables, pages and ledger. Nothing here changes it.

Stages are done in order: nothing is charged before all that can fail has been seen to work. A stage is known by a key:
the digest of its settings, of the files it reads and of shoal's version. It is done where the state has it with this
key and its files are intact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import shoal
from shoal.errors import InputError, ShoalError
from shoal.files import digest_of, file_digest
from shoal.numerics.notebook import sections
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import AuditFacts, DesignFacts, FitFacts, ReleaseFacts
from shoal.product.card.statements import HEADINGS, Statement, handing, would_protect
from shoal.product.runs import reader, secret
from shoal.product.runs.config import Config
from shoal.product.runs.folder import DESIGN, FIT, LEDGER, Context, StageOutcome
from shoal.product.runs.stages import (
    card_stage,
    crowd_stage,
    design_stage,
    fit_stage,
    readings_stage,
    release_stage,
    table_stage,
)
from shoal.product.runs.stages.crowd_stage import CrowdFacts, gathered
from shoal.records import Record

if TYPE_CHECKING:
    import polars as pl

    from shoal.product.runs.choice import Choice
    from shoal.proofs.proof import Proof

#: The pages of :meth:`Results.explain`, and the folder of :meth:`Results.prove`.
BOARD, ANNEX, PROOFS = "board.html", "annex.html", "proof"
#: Files that a user looks for, and what they are.
FILES = {
    card_stage.REPORT: "the report, for the data owner: it shows true answers",
    card_stage.PACKAGE: "public/ is what to pass on, a data package: columns, units, licence, guarantee",
    card_stage.PUBLIC: "the report to pass on: what the card says, without names and true answers",
    release_stage.PUBLIC: "the released figures, to pass on: no names",
    reader.FILE: "how far homes lie from rows, pooled over all crowds, to pass on",
    release_stage.CSV: "the same with whose row each one is: your key, keep it private (also .parquet)",
    "card.md": "the release card, to publish with the figures (also .json)",
    crowd_stage.LEFT_OUT: "who has no row in it, and why",
    LEDGER: "crowds and what was spent; keep it, and keep it private: it is as private as the readings",
}
Facts = TypeVar("Facts", bound=Record)


@dataclass(frozen=True)
class Stage:
    """One stage: words for its progress, settings that its result depends on, its function."""

    doing: str
    settings: tuple[str, ...]
    work: Callable[[Results], StageOutcome]


METERS = Stage("reading meters", fit_stage.SETTINGS, lambda run: fit_stage.stage(run))
TABLE = Stage(table_stage.DOING, table_stage.SETTINGS, lambda run: table_stage.stage(run))
DECLARED = replace(
    TABLE, settings=(*TABLE.settings, "secret", "bounds", "cells"), work=lambda run: readings_stage.read_table(run)
)
CROWDS = Stage(crowd_stage.DOING, crowd_stage.SETTINGS, lambda run: crowd_stage.stage(run, run.known_fit))
DESIGNED = Stage(design_stage.DOING, design_stage.SETTINGS, lambda run: design_stage.stage(run))
AUDIT = Stage(design_stage.ATTACKING, ("query",), lambda run: design_stage.audit_stage(run))
MEANS = Stage(release_stage.RECORDING, release_stage.SETTINGS, lambda run: release_stage.means(run, run.plan))
DRAWN = Stage(release_stage.DRAWING, release_stage.SETTINGS, lambda run: release_stage.method(run, run.plan))
NOISY = Stage(readings_stage.DOING, readings_stage.SETTINGS, lambda run: readings_stage.stage(run, run.known_fit))
LAST = {
    "card": Stage(
        card_stage.DOING,
        card_stage.SETTINGS,
        lambda run: card_stage.stage(run, run.card, run.facts("crowds", CrowdFacts)),
    ),
    "report": Stage(
        card_stage.REPORTING,
        card_stage.REPORT_SETTINGS,
        lambda run: card_stage.report_stage(
            run, run.card, run.facts("crowds", CrowdFacts), run.handing, run.timings, run.released_on
        ),
    ),
}


class WorstCurve(NamedTuple):
    """Upper ends of δ at each ε, and the directed edge that has it."""

    delta_upper: tuple[float, ...]
    worst_edge: tuple[tuple[str, str], ...]


class Results(Context):
    """What has been done in one folder, and what came of it; :class:`shoal.Run` is the one that does it."""

    did: list[str]  #: stages that were done since the folder was opened
    rehearsed: Path | None = None  #: the file that a rehearsal wrote
    rehearsed_card: ReleaseCard | None = None  #: its card, as it would be
    new_ledger: str | None = None  #: where the owner's ledger was begun for this release, as there was none
    choice: Choice | None = None  #: the crowd that was asked for in other words, where it was

    def __repr__(self) -> str:
        """The folder and how far it is; nothing of what is in it."""
        far = f"done until {list(self.state.stages)[-1]}" if self.state.stages else "nothing done"
        return f"{type(self).__name__}({self.path.name!r}, release {self.state.release}, {far})"

    def _repr_html_(self) -> str:
        """The summary, for the owner."""
        return sections(repr(self), self.summary())

    # ------------------------------------------------------------------ stages

    @property
    def charged(self) -> bool:
        """Whether a method releases a row per label or sample under an ε: asked for, or several rows per label."""
        return self.config.charged if self.fit is None else crowd_stage.charged(self.config, self.fit)

    @property
    def of_readings(self) -> bool:
        """Whether the secret is the readings themselves."""
        return self.config.secret == secret.READINGS

    @property
    def pipeline(self) -> dict[str, Stage]:
        """The stages of this run by name, in order; each rests on the one before it."""
        if self.of_readings:
            return {"fit": DECLARED if self.source.table else METERS, "release": NOISY, **LAST}
        first = {"fit": TABLE if self.source.table else METERS, "crowds": CROWDS}
        if not self.charged:
            return {**first, "release": MEANS, **LAST}
        return {**first, "design": DESIGNED, "audit": AUDIT, "release": DRAWN, **LAST}

    def before(self, stage: str) -> list[str]:
        """The stages of this run before one of them, in order."""
        names = list(self.pipeline)
        return names[: names.index(stage)]

    def key(self, stage: str) -> str:
        """The digest of all that goes into a stage."""
        inputs: dict[str, Any] = {
            "stage": stage,
            "shoal": shoal.__version__,
            "settings": self.config.part(*self.pipeline[stage].settings),
            "before": [self.key(name) for name in self.before(stage)[-1:]],
        }
        period = (self.config.period or self.state.day) if self.config.label is not None else None
        if stage == "fit":
            inputs |= {"source": self.state.source.digest, "previous": self.state.previous}
        elif stage == "crowds":
            file, _, column = (self.config.boundaries or "").rpartition(":")
            path = Path(file or column)
            boundaries = f"{file_digest(path)} {column}" if path.is_file() else self.config.boundaries
            inputs |= {"boundaries": boundaries, "period": period}
        elif stage == "release":
            inputs |= {"release": self.state.release, "period": period if self.of_readings else None}
        return digest_of(inputs)

    def is_done(self, stage: str) -> bool:
        """Whether a stage and all that it rests on are done, as now configured, and their files intact."""
        done = self.state.stages.get(stage)
        return (
            stage in self.pipeline
            and all(self.is_done(name) for name in self.before(stage)[-1:])
            and done is not None
            and done.key == self.key(stage)
            and self.folder.intact(done)
        )

    # ------------------------------------------------------------------ facts of the stages

    def facts(self, stage: str, kind: type[Facts]) -> Facts | None:
        """What a stage recorded; None where it is not done."""
        done = self.state.stages.get(stage)
        return None if done is None else kind.from_json(done.facts)

    def known(self, stage: str, kind: type[Facts]) -> Facts:
        """What a stage recorded, which must be done."""
        self.demand(stage)
        return kind.from_json(self.state.stages[stage].facts)

    @property
    def known_fit(self) -> FitFacts:
        """What the first stage recorded, which must be done."""
        return self.known("fit", FitFacts)

    @property
    def plan(self) -> CrowdFacts:
        """What the stage of crowds recorded, which must be done."""
        return self.known("crowds", CrowdFacts)

    @property
    def fit(self) -> FitFacts | None:
        """What the first stages recorded, with crowds where they are formed; None where nothing is done."""
        return self.plan.fit if "crowds" in self.state.stages else self.facts("fit", FitFacts)

    @property
    def design(self) -> DesignFacts | None:
        return self.facts("design", DesignFacts)

    @property
    def release(self) -> ReleaseFacts | None:
        return self.facts("release", ReleaseFacts)

    @property
    def audit(self) -> AuditFacts | None:
        return self.facts("audit", AuditFacts)

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of the stages that are done."""
        return {name: done.seconds for name, done in self.state.stages.items()}

    @property
    def released_on(self) -> str:
        """The day on which the release was made."""
        return self.state.stages["release"].finished[:10]

    def failed(self, *stages: str) -> bool:
        """Whether shards were left out of one of these stages: "fit", "design" or "release"."""
        return any(facts is not None and bool(facts.failed) for facts in (getattr(self, name) for name in stages))

    @property
    def exit_code(self) -> int:
        """A violation found by the audit is a guarantee not met, 4; shards left out are bad input, 2."""
        if self.audit is not None and self.audit.verdict == "violated" and self.is_done("audit"):
            return 4
        return 2 if self.failed("fit", "design", "release") else 0

    def demand(self, *stages: str) -> None:
        """Raise unless these stages are done."""
        for stage in stages:
            if stage not in self.state.stages:
                raise InputError(f"dir: the stage {stage!r} of {self.path.name} is not done; run `shoal run` on it")

    # ------------------------------------------------------------------ what was released

    @property
    def card(self) -> ReleaseCard:
        """The release card: of means, of what a method released under an ε, or of noisy readings."""
        self.demand("fit", *(("design", "audit") if self.charged else ()), "release")
        return self.card_so_far

    @property
    def card_so_far(self) -> ReleaseCard:
        """The card of the stages that are done."""
        fit = self.fit
        assert fit is not None
        if self.rehearsed_card is not None:
            return self.rehearsed_card
        if self.of_readings:
            released = "release" in self.state.stages
            settings = readings_stage.public_settings(self.path) if released else None
            return ReleaseCard.of_readings(settings or readings_stage.settings_of(self, fit))
        design, audit = (self.design, self.audit) if self.charged else (None, None)
        card = ReleaseCard.of(fit, design, self.release, audit, charged=self.charged)
        done = self.facts("card", card_stage.CardFacts)
        return card if done is None else replace(card, attack=done.attack, course=done.course, rules=done.rules)

    @property
    def released(self) -> pl.DataFrame:
        """What was released, with whose it is.

        Of meters: household, crowd, homes, news, step, timestamp, kw. Of a table: label, crowd, homes, news and its
        columns. A method's release has a row per home or sample: crowd, row, …
        """
        import polars as pl

        self.demand("release")
        return pl.read_parquet(self.folder / release_stage.PARQUET)

    @property
    def report(self) -> Path:
        """The page for the data owner; it shows true answers."""
        self.demand("report")
        return self.folder / card_stage.REPORT

    @property
    def handing(self) -> tuple[Statement, ...]:
        """What to pass on and what to keep, once something was released; of readings also what only the owner knows."""
        if "release" not in self.state.stages:
            return ()
        own = readings_stage.owner_statements(self.path) if self.of_readings else ()
        return (*own, *handing(self.path.name, self.place.where))

    def reader(self, row: int | Sequence[float]) -> pl.DataFrame:
        """For the recipient: how far homes lie from a row, by step; one law pooled over all crowds of the release.

        Args:
            row: the number of a crowd, or the figures of its row as they were released.

        Returns:
            entry, row, and below_10 … below_90: the figures below which so many percent of homes lie. It is never a
            crowd's own spread; ``public/reader.json`` is what it is made from (:mod:`shoal.product.runs.reader`).

        >>> run.reader(123456)  # doctest: +SKIP
        """
        self.demand("release")
        if self.charged:
            raise InputError("reader: a method releases a row per home under an ε; its card says how far it is off")
        return reader.around(self.folder / reader.FILE, self.folder / release_stage.PUBLIC, row)

    def curve(self, epsilon: Sequence[float], notion: str = "dp") -> WorstCurve:
        """δ(ε) over all pairs of the run: of what is released ("dp"), or of the ideal laws under another notion."""
        self._demand_method()
        works = [partial(_curve_of, part.path, list(epsilon), notion) for part in self.listing(DESIGN).parts]
        with self.workers(len(works)) as executor:
            points = zip(*executor.every(works), strict=True)
        worst = [max(shards, key=lambda point: point[0]) for shards in points]
        return WorstCurve(tuple(delta for delta, _ in worst), tuple(edge for _, edge in worst))

    def frontier(
        self, rho: Sequence[float], methods: Sequence[str], *, epsilon: float | None = None, search: int = 10
    ) -> dict[str, list[float]]:
        """Method -> the δ that each budget, ascending, leaves in the worst crowd of the run. Nothing is changed."""
        self._demand_method()
        at = self.config.stated_epsilon if epsilon is None else epsilon
        works = [
            partial(_frontier_of, part.path, block.path, self.config, sorted(rho), list(methods), at, search)
            for part, block in self.listing(DESIGN).pairs
        ]
        with self.workers(len(works)) as executor:
            shards = executor.every(works)
        return {
            name: [max(deltas) for deltas in zip(*(shard[name] for shard in shards), strict=True)] for name in methods
        }

    def prove(self, *, epsilon: float | None = None, scope: str | None = None) -> dict[str, Proof]:
        """A proof of every shard's mechanism, written to ``proof/``; by default at the ε and scope of its design."""
        from shoal.mechanism.releasable import load
        from shoal.proofs.proof import prove

        self._demand_method()
        proofs: dict[str, Proof] = {}
        for part in self.listing(DESIGN).parts:
            proof = load(part.path).by_kind(
                mechanism=lambda m: prove(m, None, epsilon, scope) if m.graph.n_edges else None, codebook=lambda _: None
            )
            if proof is not None:
                proofs[part.key] = proof
                (self.folder / PROOFS).mkdir(exist_ok=True, mode=0o700)
                proof.save(self.folder / PROOFS / f"{part.key}.json")
        if not proofs:
            raise InputError("dir: this run has no Gaussian mechanism with neighbors, and nothing to prove")
        return proofs

    def _demand_method(self) -> None:
        """Raise unless something with an ε was designed."""
        if self.config.secret == "readings":
            raise InputError(
                "dir: there is nothing to prove here: the (ε, δ) of the readings' promise is that of one Gaussian "
                "vector, a closed form rounded up, which is on the card"
            )
        if not self.charged:
            raise InputError(
                "dir: nothing is certified here: rows are averages over a crowd, without noise, ε or δ. A method= has "
                "something to certify"
            )
        self.demand("design")

    def explain(self, purpose: str = "") -> tuple[Path, Path]:
        """Write one page for a board and an annex for a regulator, from the card; their paths."""
        from shoal.product.card.render import annex, board

        card, title, day = self.card, self.config.title, self.released_on
        return (
            self.folder.put(BOARD, board(card, title=title, made=day)),
            self.folder.put(ANNEX, annex(card, purpose=purpose, title=title, made=day)),
        )

    # ------------------------------------------------------------------ what to say about it

    def to_dict(self) -> dict[str, Any]:
        """What is there, for machines."""
        seal = self.state.ledger
        return {
            "folder": str(self.path),
            "did": list(self.did),
            "release": self.state.release,
            "ledger": {"where": self.place.where, "identity": seal and seal.identity, "head": seal and seal.head},
            "config": self.config.to_json(),
            "choice": None if self.choice is None else self.choice.to_json(),
            "stages": {
                name: {
                    "done": self.is_done(name),
                    "seconds": done.seconds,
                    "finished": done.finished,
                    "files": sorted(done.files),
                    **done.facts,
                }
                for name, done in self.state.stages.items()
            },
        }

    def _mean_kw(self) -> float | None:
        """The homes' own mean load, over the steps of their forecasts: the owner's; None of a table."""
        if self.config.label is not None:
            return None
        try:
            every = gathered(self.listing(FIT).parts)
        except (OSError, ShoalError):
            return None
        return float(every["value"].to_numpy().mean()) if "value" in every.columns and len(every) else None

    def summary(self, *, verbose: bool = False) -> list[tuple[str, list[str]]]:
        """What happened, for people: headings with their sentences; five of them, or with ``verbose`` everything."""
        from shoal.product.card.render import summary

        fit = self.fit
        parts = [] if fit is None else summary(self.card_so_far, self.handing, verbose=verbose)
        # With a new table only: it takes longer to compute than a second look at all the rest.
        if self.did and not self.of_readings and fit is not None:
            attack = next((lines for heading, lines in parts if heading == HEADINGS["attack"]), parts[0][1])
            attack.append(would_protect(fit, self._mean_kw()))
        # The card of a release of readings is made of public settings alone: what only the owner may know is put here.
        if self.of_readings and fit is not None:
            price = secret.price(self.config, self._mean_kw())
            parts.append(("Mind", [*fit.doubts, *([price] if price else [])]))
        if self.audit is not None and self.audit.verdict == "violated":
            parts.insert(0, ("Violated", ["The audit found more than is promised. Do not use this release."]))
        if self.rehearsed is not None:
            words = f"A rehearsal: nothing was released, recorded or charged. {self.rehearsed} has what would be."
            parts.insert(0, ("Not released", [words]))
        elif not self.has_released and fit is not None:
            parts.insert(0, ("Not released", ["Nothing was released, recorded or charged."]))
        if self.new_ledger is not None:
            parts.append(("Ledger", [f"There was none, so one was begun: {self.new_ledger}. Keep it."]))
        if self.choice is not None:
            parts.append(("Chosen", self.choice.sentences()))
        if not verbose:
            return parts
        spent = "crowds and everything that is charged about the same labels are on record here"
        if self.place.own:
            spent = "of this folder alone" + ("; nobody real is behind it" if self.state.source.simulated else "")
        parts.append(("Ledger", [f"{self.place.where}: {spent}."]))
        if self.timings:
            each = ", ".join(f"{name} {value:.1f} s" for name, value in self.timings.items())
            parts.append(("Time", [f"{each}; {sum(self.timings.values()):.0f} s in all."]))
        files = [f"{self.path / name}: {text}" for name, text in FILES.items() if (self.folder / name).is_file()]
        return [*parts, ("Files", files)] if files else parts


def _curve_of(path: str, epsilon: list[float], notion: str) -> list[tuple[float, tuple[str, str]]]:
    """One shard's δ at each ε, rounded up, with the directed edge that has it."""
    from shoal.accounting.curve import falling
    from shoal.mechanism.mechanism import Mechanism
    from shoal.mechanism.releasable import load

    mechanism = load(path)
    if notion == "dp":
        curve = mechanism.released_curve(epsilon)
    elif isinstance(mechanism, Mechanism):
        curve = mechanism.curve(epsilon, notion)
    else:
        raise InputError("notion: what a codebook releases is accounted for as dp only")
    edges = [(str(a), str(b)) for a, b in curve.worst_edge]
    return list(zip(falling(epsilon, curve.delta_upper).tolist(), edges, strict=True))


def _frontier_of(
    path: str, block: str, config: Config, rho: list[float], methods: list[str], epsilon: float, iterations: int
) -> dict[str, list[float]]:
    """One shard's δ by method and budget, from the files of its mechanism and of what that was made for."""
    from shoal.designs.design import frontier
    from shoal.mechanism.releasable import load
    from shoal.product.runs.blocks import answers_of

    mechanism, shard = load(path), answers_of(block, config)
    graph, scope, times = mechanism.graph, mechanism.scope, mechanism.times
    if shard.labels != graph.labels:
        raise InputError("dir: some labels have no answer today; ask again after a day when all have one")
    figures = frontier(shard.laws(), graph, methods, epsilon, rho, iterations=iterations, scope=scope, times=times)
    return {name: [float(delta) for delta in figures.delta_upper[name]] for name in methods}
