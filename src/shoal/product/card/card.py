"""The release card: everything a reader needs to judge a release, made from what its stages measured, to be published.

It names no label, its accuracy cannot be solved for the answers behind it, and nothing on it is a function of who is
who. Its figures are those of the facts, rounded to their safe side; what it says are its statements.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import shoal
from shoal.plaintext import html_sections
from shoal.product.card.facts import (
    CROWD,
    Accuracy,
    AuditFacts,
    DesignFacts,
    FitFacts,
    Guard,
    OwnAttack,
    ReleaseFacts,
    promised_delta,
)
from shoal.product.card.promises import LADDER, Step
from shoal.product.card.statements import HEADINGS, KIND, POOLED, PUBLIC, SHOWN_DIGITS, Statement, card_statements
from shoal.records import to_plain
from shoal.rounding import down, nearest, up

if TYPE_CHECKING:
    from shoal.readings.publication import PublicSettings

VERSION = 6
#: The δ's of a guard.
GUARDED = ("promise", "delta_at_confidence", "noise_alone")
#: Queries whose guarantee rests on a law of the answers.
LAWS = ("trajectory", "marginal", "sample", "as_in_paper", None)


@dataclass(frozen=True)
class ReleaseCard:
    """Facts about a release, from the stages of a run."""

    fit: FitFacts
    design: DesignFacts | None = None
    release: ReleaseFacts | None = None
    audit: AuditFacts | None = None
    readings: PublicSettings | None = None
    attack: OwnAttack | None = None
    rules: tuple[str, ...] = ()  #: names of the rules of aggregation that every row keeps
    charged: bool = False  #: a method's, also before it is designed

    @classmethod
    def from_settings(cls, settings: PublicSettings) -> ReleaseCard:
        """The card of a release of noisy readings, made from its public settings alone."""
        zone = "UTC" if settings.has_time_zone else None
        when: dict[str, Any] = {"origin": settings.origin or None, "step_minutes": settings.step_minutes or None}
        return cls(FitFacts(noun=settings.noun, time_zone=zone, **when), readings=settings)

    @property
    def guard(self) -> Guard | None:
        """The guard of the audit: it looks at some crowds, and no figure of it is told below what all are promised."""
        guard, design = None if self.audit is None else self.audit.guard, self.design
        if guard is None or design is None:
            return guard
        return replace(guard, **{name: max(getattr(guard, name), design.delta) for name in GUARDED})

    @property
    def kind(self) -> str:
        """Name of the kind of release: "averages", "answers" or "readings"."""
        return self.step.name

    @property
    def step(self) -> Step:
        """The promise that this kind of release makes, with the words that differ by kind."""
        if self.readings is not None:
            return LADDER["readings"]
        return LADDER["answers" if self.design is not None or self.charged else "averages"]

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """All statements about the release, for the public and for the owner."""
        return card_statements(self)

    @property
    def public(self) -> tuple[Statement, ...]:
        """The statements that may be published."""
        return tuple(one for one in self.statements if one.audience == PUBLIC)

    @property
    def secret(self) -> str:
        """What is protected: "label", which member of a crowd a row is about, or "readings", all that a home sent."""
        return self.step.secret

    @property
    def digest(self) -> str:
        """SHA-256 of the card's content as canonical JSON, in hexadecimal."""
        return hashlib.sha256(json.dumps(self._json_content, sort_keys=True, allow_nan=False).encode()).hexdigest()

    @property
    def meaningful(self) -> bool:
        """Whether the promised δ is small enough to mean something; True where there is no δ."""
        return self.design is None or self.design.meaningful

    @property
    def doubtful(self) -> bool:
        """Whether the guarantee assumes a Gaussian law that the rows of too many labels reject."""
        return self.design is not None and self.design.doubtful

    @property
    def rests_on_model(self) -> bool:
        """Whether the guarantee assumes a probability law of the answers."""
        return self.design is not None and self.design.query in LAWS

    @property
    def statement(self) -> str:
        """The promise in one sentence, or its (ε, δ)."""
        if self.design is not None:
            return self.design.statement
        if self.readings is not None:
            return f"This table protects every {self.readings.noun}'s readings, against someone who knows all others."
        return next(statement.sentence for statement in self.statements if statement.key == "promise")

    @property
    def period(self) -> str:
        """The instant that the release is about, in ISO 8601; without an offset where no time zone is known."""
        source = self.release if self.readings is None else self.readings
        period = "" if source is None else source.period
        return period if self.fit.time_zone is not None else period.removesuffix("Z")

    @property
    def accuracy(self) -> Accuracy | None:
        """Errors of the released rows against the labels' own answers; None where they are not known."""
        if self.design is not None:
            return self.design.accuracy
        return None if self.release is None else self.release.accuracy

    @property
    def price(self) -> float | None:
        """Error against later readings, released over unprotected, as a ratio; None where it is not known."""
        before, after = self.later_errors
        return after / before if before and after is not None else None

    @property
    def may_publish_errors(self) -> bool:
        """Whether errors pooled over labels may be published: too few labels would reveal answers."""
        if self.design is not None:
            return self.fit.fitted_on_private_data is not True or self.design.accuracy.labels >= CROWD
        return self.release is not None and self.accuracy is not None and self.release.crowds >= POOLED

    @property
    def may_publish_worst_error(self) -> bool:
        """Whether the worst label's error may be published: it must depend on noise alone, not on an answer."""
        if self.design is None:
            return False
        accuracy = self.design.accuracy
        return self.fit.fitted_on_private_data is not True or (accuracy.noise_alone and not accuracy.ratio)

    @property
    def later_errors(self) -> tuple[float | None, float | None]:
        """Mean absolute errors against later readings: of unprotected answers, and of released rows."""
        return self.fit.later_error, None if self.release is None else self.release.later_error

    def to_dict(self) -> dict[str, Any]:
        """The card as plain dictionaries, lists, numbers and texts, with its digest."""
        return {**self._json_content, "digest": self.digest}

    def to_json(self) -> str:
        """The card as JSON text, with its digest."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_markdown(self) -> str:
        """The card as a page of Markdown: its public statements and tables."""
        from shoal.product.card.render import card_markdown

        return card_markdown(self)

    def _repr_html_(self) -> str:
        """The public part for notebooks: the first sentence under each heading."""
        first: dict[str, list[str]] = {}
        for statement in self.public:
            first.setdefault(HEADINGS[statement.key], [statement.sentence])
        return html_sections(f"Release card {self.digest[:12]}", first.items())

    def __repr__(self) -> str:
        return f"ReleaseCard({self.statement}, digest {self.digest[:12]})"

    @property
    def _json_content(self) -> dict[str, Any]:
        """The card's content as plain values, without the digest."""
        content: dict[str, Any] = {
            "format": "shoal release card",
            "version": VERSION,
            "software": {"name": "shoal", "version": shoal.__version__},
            "kind": self.kind,
            "secret": self.secret,
            "statement": self.statement,
            "statements": [
                {"key": s.key, "figure": s.figure, "sentence": s.sentence, "more": list(s.more)} for s in self.public
            ],
        }
        if self.design is not None:
            return content | _answers_figures(self, self.design)
        if self.readings is not None:
            return content | _readings_figures(self, self.readings)
        return content | _averages_figures(self)


def _averages_figures(card: ReleaseCard) -> dict[str, Any]:
    """Figures of a release of averages for the card's JSON."""
    fit, release, accuracy = card.fit, card.release, card.accuracy
    return {
        "technique": KIND,
        "period": None if release is None else card.period,
        "least": fit.crowd,
        "labels": fit.labels,
        "crowds": fit.groups if release is None else release.crowds,
        "smallest": fit.smallest_group,
        "largest": fit.largest_group,
        "withheld": None if release is None else release.withheld,
        "rules": list(card.rules),
        "origin": fit.origin,
        "step_minutes": fit.step_minutes,
        "rmse": up(accuracy.rmse, SHOWN_DIGITS) if card.may_publish_errors and accuracy is not None else None,
        "unit": None if accuracy is None else accuracy.unit,
        "price": up(card.price, 3) if card.may_publish_errors else None,
    }


def _readings_figures(card: ReleaseCard, settings: PublicSettings) -> dict[str, Any]:
    """Figures of a release of noisy readings for the card's JSON."""
    plan, series = settings.plan, settings.series
    zero_out, replaced = series.deltas(plan.account)
    return {
        "technique": "noise under the readings' promise (differential privacy)",
        "period": card.period,
        "customers": plan.customers,
        "epsilon": series.epsilon,
        "delta": zero_out,
        "delta_replaced": replaced,
        "releases": series.releases,
        "cap": series.cap,
        "mu": plan.mu,
        "expected_w1": getattr(plan, "expected_w1", None),
        "expected_total": getattr(plan, "expected_total", None),
    }


def _answers_figures(card: ReleaseCard, design: DesignFacts) -> dict[str, Any]:
    """Figures of a release of answers by a method for the card's JSON."""
    guard = card.guard
    return {
        "mechanism": {"method": design.method, "notes": list(design.notes)},
        "guarantee": _guarantee_figures(design),
        "graph": design.part("labels", "edges", "groups", "smallest_group", "largest_group", "without_neighbors"),
        "query": {"name": design.query, **design.part("entries", "all_alike")},
        "curve": {
            "notion": "dp",
            "epsilon": [epsilon for epsilon, _ in design.curve],
            "delta": [up(delta) for _, delta in design.curve],
        },
        "identification": {"success_upper": up(design.naming, most=1.0), "guessing": design.guessing},
        "accuracy": _accuracy_figures(card, design),
        "model": {  # checks only where the guarantee rests on the laws
            **card.fit.part("fitted_on_private_data", "left_out"),
            "checks": to_plain(card.fit.checks) if card.rests_on_model else None,
            "guard": guard and guard.to_json() | {name: up(getattr(guard, name)) for name in GUARDED},
        },
        "composition": _budget_figures(card.release),
        "audit": _audit_figures(design, card.audit),
        "left_out": {
            "labels": card.fit.left_out,
            **card.fit.part("reasons", "newcomers"),
        },
    }


def _guarantee_figures(design: DesignFacts) -> dict[str, Any]:
    """The guarantee for the card's JSON."""
    both = {design.scope: design.delta, "table" if design.scope == "answer" else "answer": design.other_delta}
    return {
        **design.part("statement", "meaningful", "scope", "epsilon", "target"),
        "delta": up(design.delta),
        "delta_one_row": up(both["answer"]),
        "delta_whole_table": up(both["table"]),
        "finite_precision": up(design.finite_precision),
        "proved": bool(design.proved),
        "proof": {"by": design.proved or None, "why_not": design.unproved or None},
    }


def _accuracy_figures(card: ReleaseCard, design: DesignFacts) -> dict[str, Any]:
    """Errors over crowds with few digits for the card's JSON; None where they could be solved for answers."""
    errors, shown, by_step = design.accuracy, card.may_publish_errors, design.may_publish_by_entry
    worst = card.may_publish_worst_error
    before, after = card.later_errors
    metered, ratio = shown and after is not None, card.price
    return {
        "unit": errors.unit,
        "rho_largest": up(errors.rho_largest) if worst else None,
        "rho_mean": up(errors.rho_mean, SHOWN_DIGITS) if shown else None,
        "rmse_by_step": [up(value, SHOWN_DIGITS) for value in errors.rmse_by_entry] if by_step else None,
        "bias_by_step": [_round_for_card(value) for value in errors.bias_by_entry] if by_step else None,
        "rmse": up(errors.rmse, SHOWN_DIGITS) if shown else None,
        "rmse_worst_label": up(errors.rmse_largest, SHOWN_DIGITS) if worst else None,
        "answer_mean": _round_for_card(errors.answer_mean) if shown else None,
        "total_error": up(errors.total_error, SHOWN_DIGITS) if shown else None,
        "price": up(ratio, 3) if metered else None,
        "later_error": {"released": up(after, SHOWN_DIGITS), "unprotected": _round_for_card(before)}
        if metered
        else None,
    }


def _round_for_card(value: float | None) -> float | None:
    """A figure without a safe side, rounded to the digits of a card; None for unknown or infinite ones."""
    return None if value is None or not math.isfinite(value) else float(nearest(value, SHOWN_DIGITS))


def _budget_figures(release: ReleaseFacts | None) -> dict[str, Any] | None:
    if release is None:
        return None
    worst = release.worst
    largest = None if worst is None else worst.part("epsilon", "budget", "mode") | {"spent": up(worst.spent)}
    return {**release.part("releases", "head"), "labels": release.ledger_labels, "largest": largest}


def _audit_figures(design: DesignFacts, audit: AuditFacts | None) -> dict[str, Any] | None:
    """The audit's verdict and its bounds of δ for the card's JSON."""
    if audit is None:
        return None
    names = ("verdict", "confidence", "n_samples", "source", "groups", "of_groups", "labels", "rule", "violations")
    return {
        **audit.part(*names),
        "detectable_delta": up(audit.detectable_delta),
        "delta_proved": down(audit.delta_proved),
        "delta_promised": up(promised_delta(design, audit)),
    }
