"""Released answers to look at: drawn through the mechanism for simulated or real members, or handed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.spectrum import supports_of
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.mechanism import Mechanism
from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray

#: Turns true answers (m, k) about one label into released ones (m, k).
Release = Callable[[FloatArray, str], Any]
#: Fewest released answers per label that an audit accepts.
FEWEST = 100


def seeded_release(mechanism: Mechanism, seed: int = 0) -> Release:
    """Releases from seeded noise, new in every call: quick, for experiments, NOT private."""
    calls = np.random.SeedSequence(validation.count(seed=seed, at_least=0))

    def release(answers: FloatArray, label: str) -> FloatArray:
        fresh = int(calls.spawn(1)[0].generate_state(2, np.uint64)[0])
        return mechanism.sample(answers, label, seed=fresh)

    return release


def simulated_answers(classes: GaussianClasses, n_samples: int, rng: np.random.Generator) -> list[FloatArray]:
    """(n_samples, k) true answers per label, drawn from the class laws: constants exact, the rest on the support.

    On an oblique support the entries that determine the others are drawn, and the others computed from them.
    """
    supports = supports_of(classes)
    values, vectors = eigh(classes.stored_covs)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    roots[classes.stored_variances == 0] = 0.0
    drawn = []
    for i, mean in enumerate(classes.means):
        root = roots[0 if classes.is_shared else i]
        family = supports.families[supports.family[i]] if supports.position[i] >= 0 else None
        if family is not None and family.spread is not None and family.classes is not None:
            factor = family.classes.cholesky[0 if family.classes.is_shared else supports.position[i]]
            root = family.spread @ factor
        drawn.append(np.asarray(mean + rng.standard_normal((n_samples, root.shape[1])) @ root.T))
    return drawn


def given_answers(answers: Any, classes: GaussianClasses, n_samples: int) -> list[FloatArray]:
    """True answers from the user, per label (m, k); a single (k,) stands for n_samples times the same answer."""
    rows = _by_label(answers, classes, (1, 2), "answers")
    return [np.tile(r, (n_samples, 1)) if r.ndim == 1 else r for r in rows]


def given_releases(releases: Any, classes: GaussianClasses) -> list[FloatArray]:
    """Released answers from the user, per label (m, k)."""
    return _by_label(releases, classes, (2,), "releases")


def release_all(
    release: Release, answers: list[FloatArray], labels: tuple[str, ...], step: Callable[[], None] | None = None
) -> list[FloatArray]:
    """Every label's true answers through the release; ``step`` is called after each label."""
    done = []
    for label, q in zip(labels, answers, strict=True):
        released = validation.array(ndim=2, release=np.asarray(release(q, label)))
        if released.shape != q.shape:
            raise InputError("release must return one released answer, with as many entries, per true answer")
        done.append(released)
        if step is not None:
            step()
    return done


def _by_label(values: Any, classes: GaussianClasses, ndim: tuple[int, ...], name: str) -> list[FloatArray]:
    try:
        rows = list(validation.by_label(classes.labels, **{name: values}))
    except TypeError:
        raise InputError(f"{name} must map every label to an array") from None
    if len(rows) != classes.n_classes:
        raise InputError(f"{name} must hold one array per label of the mechanism, in its order")
    arrays = [validation.array(ndim=ndim, **{name: row}) for row in rows]
    if any(a.shape[-1] != classes.n_dims for a in arrays):
        raise InputError(f"{name} must have {classes.n_dims} entries per answer")
    if any(a.ndim > 1 and len(a) < FEWEST for a in arrays):
        raise InputError(f"{name} must hold at least {FEWEST} answer(s) for every label")
    return arrays
