"""Mechanisms: what is done to each label's answer, what that costs in accuracy, and how private the result is.

    q̃ = q + shift + gain (q − μ) + noise,   noise ~ N(0, noise_cov)

The sum μ + shift is rounded to a multiple of 2^mean_grid where there is one, so that labels which meet up to rounding
meet exactly. Output laws, error and certificate are computed from these stored parameters; ``release`` rounds q̃ to a
grid, and the certificate includes what that costs (docs/theory.md, section 9). A file of a mechanism holds the class
laws and must be guarded like the data.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import (
    NOTIONS,
    PrivacyCurve,
    log_delta_brackets,
    monotone_upper_ends,
    privacy_curve,
    worst_curve,
)
from shoal.accounting.releases import SCOPES, Releases
from shoal.errors import CertificationError, InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.laws.supports import RankWarning, cached_supports
from shoal.mechanism.output_laws import output_covs, output_means
from shoal.mechanism.releasable import (
    Certificate,
    Parts,
    ReleaseErrors,
    Storable,
    add_precision_loss,
    describe_guarantee,
    law_arrays,
    laws_from_arrays,
)
from shoal.noise.exact_map import EXACT, ExactMap
from shoal.noise.factor import JITTER, needs_jitter
from shoal.noise.grid import UP, NoiseGrid, edge_delta_increase, label_total_variation
from shoal.noise.source import NotPrivate, seeded_noise, standard_normals
from shoal.numerics.matrices import EPS
from shoal.plaintext import html_table
from shoal.rounding import exactly, lower, upper
from shoal.validation import BoolArray, FloatArray, IndexArray

#: Fields that a file has as arrays, the last two of them only where they are not None; fields in its header.
ARRAYS = ("epsilon", "shift", "noise_cov", "budget", "gain", "mean_grid")
NAMED = ("method", "notion", "scope", "times")
#: Share of ρ below which its noise is named wherever a mechanism prints itself.
LITTLE_NOISE = 0.01
#: Answers whose noise is in memory at a time.
DRAWN = 4096


class Ending(StrEnum):
    """The end of the search for a mechanism."""

    COMPLETE = "the search went to its end"
    OUT_OF_TIME = "the time limit ended the search: this is the best design found until then"
    INTERRUPTED = "an interrupt ended the search: this is the best design found until then"


@dataclass(frozen=True, eq=False)
class Mechanism(Storable):
    """A frozen mechanism for every label of a family. Made by :func:`shoal.design` and :func:`shoal.calibrate`."""

    method: str
    classes: GaussianClasses
    graph: NeighborGraph
    epsilon: FloatArray
    notion: str
    shift: FloatArray
    gain: FloatArray | None
    noise_cov: FloatArray
    budget: FloatArray
    notes: tuple[str, ...] = ()
    mean_grid: IndexArray | None = None
    ending: Ending = Ending.COMPLETE
    scope: str = "answer"
    times: int = 1  #: independent answers about each label that the certificate is for

    FORMAT = "shoal mechanism"
    VERSION = 1
    answer_epsilon = None  #: the loss of a Gaussian answer has no bound

    # ------------------------------------------------------------------ what it is about

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that it can answer about, in the order of ``classes``."""
        return self.classes.labels

    @property
    def n_dims(self) -> int:
        """Number of entries of an answer."""
        return self.classes.n_dims

    @property
    def has_constant_answers(self) -> bool:
        """Whether every label has one constant true answer."""
        return not self.classes.stored_variances.any()

    def for_labels(self, labels: Sequence[str]) -> Mechanism:
        """The mechanism of some of its labels, with the edges between them."""
        members = np.array([self.position(name) for name in labels], dtype=np.intp)
        place = np.full(self.classes.n_classes, -1, dtype=np.intp)
        place[members] = np.arange(len(members))
        pairs = place[self.pairs]
        inside = np.flatnonzero((pairs >= 0).all(axis=1))
        pairs = np.sort(pairs[inside], axis=1)
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        noise = np.broadcast_to(self.noise_cov, (self.classes.n_classes, *self.noise_cov.shape[1:]))
        return replace(
            self,
            classes=self.classes.take(members),
            graph=NeighborGraph(labels, pairs[order]),
            epsilon=self.epsilon[inside][order],
            shift=self._shift_by_label[members].copy(),
            gain=None if self.gain is None else self.gain[members],
            noise_cov=noise[members].copy(),
            budget=self.budget[members],
            mean_grid=None if self.mean_grid is None else self.mean_grid[members],
        )

    # ------------------------------------------------------------------ what it does

    @cached_property
    def output(self) -> GaussianClasses:
        """Laws of the released answer, from the stored parameters, with bounds on what rounding took off them."""
        if self.gain is None and not self.shift.any():
            first = self.noise_cov[0]
            if (first == first.T).all() and (len(self.noise_cov) == 1 or (self.noise_cov == first).all()):
                diagonal = np.diagonal(first)
                output = self.classes.with_noise(diagonal if (first == np.diag(diagonal)).all() else first)
                added = np.diag(self._jitter_bound[0])
                return output.with_errors(added[None], np.zeros(self.classes.means.shape))
        means, mean_error = self._moved_means
        covs, cov_error = output_covs(self.classes.stored_covs, self.gain, self.noise_cov)
        covs = np.broadcast_to(covs, (len(means), *covs.shape[1:]))
        entries = np.arange(self.n_dims)
        cov_error[:, entries, entries] += self._jitter_bound
        if self.classes.errors is not None:
            # An answer whose mean is off by e is released off by (I + gain) e.
            linear = np.abs(np.eye(self.n_dims) + (0.0 if self.gain is None else self.gain))
            moved = (linear @ np.broadcast_to(self.classes.errors[1], means.shape)[:, :, None])[:, :, 0]
            mean_error = mean_error + (1 + 1e-9) * moved
            cov_error = cov_error + (1 + 1e-9) * linear @ self.classes.errors[0] @ np.swapaxes(linear, -1, -2)
        return GaussianClasses(means, covs, self.classes.labels).with_errors(cov_error, mean_error)

    @cached_property
    def _moved_means(self) -> tuple[FloatArray, FloatArray]:
        """(n, k) expected released answers, and what rounding took off each."""
        return output_means(self.classes.means, self._shift_by_label, self.mean_grid)

    @cached_property
    def _jitter_bound(self) -> FloatArray:
        """(n or 1, k) bound on what a release adds to the variances of noise that rounding made singular."""
        diagonal = np.diagonal(self.noise_cov, axis1=1, axis2=2)
        return np.where(needs_jitter(self.noise_cov)[:, None], (JITTER + 1) * self.n_dims * EPS * diagonal, 0.0)

    @cached_property
    def _entry_mean_squares(self) -> FloatArray:
        """(n, k) mean squared error of each entry, rounded up."""
        k = self.classes.n_dims
        total = self.bias**2 + self.error_variance + self._jitter_bound
        if self.gain is not None:
            size = np.abs(self.gain)
            reach = (size @ np.sqrt(self.classes.stored_variances)[:, :, None])[:, :, 0]
            total = total + (4 * k + 16) * EPS * reach**2
            if self.classes.errors is not None:
                cov_error, mean_error = self.classes.errors
                missed = (size @ mean_error[:, :, None])[:, :, 0]
                total = total + ((size @ cov_error) * size).sum(axis=2) + missed * (2 * np.abs(self.bias) + missed)
        return np.asarray(total * (1 + 4 * k * EPS))

    @property
    def rho(self) -> FloatArray:
        """(n,) mean squared error per entry that each label spends, rounded up: what is held against the budget."""
        return np.asarray(self._entry_mean_squares.mean(axis=1))

    @property
    def bias(self) -> FloatArray:
        """(n, k) expected released answer minus expected true answer."""
        if self.mean_grid is None:
            return np.array(self._shift_by_label)
        return np.where(self.mean_grid > EXACT, self._moved_means[0] - self.classes.means, self._shift_by_label)

    @property
    def error_variance(self) -> FloatArray:
        """(n, k) variance of released minus true answer: diag(G Σ Gᵀ + N)."""
        variance = np.diagonal(self.noise_cov, axis1=1, axis2=2)
        if self.gain is not None:
            variance = variance + np.maximum(((self.gain @ self.classes.stored_covs) * self.gain).sum(axis=2), 0.0)
        return np.maximum(np.broadcast_to(variance, self.classes.means.shape), 0.0)

    def expected_errors(self, labels: Sequence[str] | None = None) -> ReleaseErrors:
        """Expected errors of released answers about these labels, all by default, in the answer's own unit."""
        rows = slice(None) if labels is None else [self.position(name) for name in labels]
        bias, variance = self.bias[rows], self.error_variance[rows]
        return ReleaseErrors(
            rho=self.rho[rows],
            squares=bias**2 + variance,
            biases=bias,
            noise_alone=self.gain is None and not bias.any(),
        )

    @property
    def _shift_by_label(self) -> FloatArray:
        """(n, k) the shift of every label, also where one is stored for all."""
        return np.asarray(np.broadcast_to(self.shift, self.classes.means.shape))

    def release(self, q: Any, label: Any) -> FloatArray:
        """The answer to give out for a true answer ``q`` about ``label``: shape (k,), on the mechanism's grid.

        A batch is (m, k) with one label for all of it or a sequence of m labels. The noise comes from a cryptographic
        source and takes no seed; all arithmetic before the rounding is exact, and the same work is done for every
        label. What is promised about the result is ``certificate`` and ``released_curve``, for one release of what
        ``scope`` says, one answer or one about each label (``times`` of them): the same answer released twice is two
        releases.

        An answer that the label's law excludes is refused, since no promise is about it: an entry without variance must
        be the label's constant exactly, and what a singular covariance fixes must hold up to the rounding of a computed
        answer.

        Returns:
            The released answers, in the shape of ``q``.

        >>> import shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
        >>> graph = shoal.NeighborGraph.complete(classes.labels)
        >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
        >>> mechanism.release([0.0], "a").shape
        (1,)
        >>> mechanism.release([[0.0], [1.0]], ["a", "b"]).shape
        (2, 1)
        """
        answers, positions = self._check_request(q, label)
        rows = np.atleast_2d(answers)
        self.refuse_impossible_answers(rows, positions, "q")
        exact = self._exact  # refuses what cannot be drawn before anything is
        out = np.empty(rows.shape)
        for start in range(0, len(rows), DRAWN):
            part = slice(start, start + DRAWN)
            out[part] = exact.release(rows[part], positions[part], standard_normals(rows[part].size))
        return out.reshape(answers.shape)

    def prepare_release(self) -> None:
        """Compute now what the first release would: every label's factors and the cost of finite precision."""
        _ = self._exact, self.rounding_tv

    def sample(self, answers: Any, label: Any, *, seed: int) -> NotPrivate:
        """Answers with noise from a seeded generator: for experiments and tests, NOT private, and marked as such.

        ``answers`` is (k,) or (m, k). Neither rounded nor drawn from a cryptographic source; see :meth:`release`.
        """
        q, _ = self._check_request(answers, label, name="answers")
        i = self.position(label)
        cov = self.noise_cov[min(i, len(self.noise_cov) - 1)]
        moved = q + self.bias[i] + seeded_noise(q.shape, cov, seed)
        if self.gain is not None:
            moved = moved + (q - self.classes.means[i]) @ self.gain[i].T
        return np.asarray(moved).view(NotPrivate)

    @cached_property
    def grid(self) -> FloatArray:
        """(k,) step between the values a released entry can take: powers of two, the same for every label.

        Rounding moves an entry by at most half a step, which ``rho`` does not count.
        """
        return self._grid.steps

    def can_release(self, values: FloatArray) -> bool:
        """Whether every row of ``values``, (m, k), lies on the grid of released answers."""
        return values.shape[1:] == (self.classes.n_dims,) and self._grid.contains(values)

    @cached_property
    def _grid(self) -> NoiseGrid:
        std = np.sqrt(np.broadcast_to(self.output.stored_variances, self.output.means.shape))
        return NoiseGrid.from_moments(self.output.means, std)

    @cached_property
    def _exact(self) -> ExactMap:
        """All labels' parameters as integers, prepared together so that no label's first release takes longer."""
        targets = None if self.mean_grid is None else np.where(self.mean_grid > EXACT, self._moved_means[0], np.nan)
        return ExactMap.from_parameters(
            self.classes.means, self._shift_by_label, self.gain, self.noise_cov, self._grid, targets
        )

    def _check_request(self, answers: Any, label: Any, name: str = "q") -> tuple[FloatArray, list[int]]:
        """Answers as an array of finite numbers, and the position of each one's label; nothing is drawn before this."""
        q = validation.array(ndim=(1, 2), **{name: answers})
        if q.shape[-1] != self.n_dims:
            raise InputError(f"{name} must have {self.n_dims} entries")
        count = 1 if q.ndim == 1 else len(q)
        if isinstance(label, (list, tuple, np.ndarray)) and np.ndim(label) > 0:
            if q.ndim == 1 or len(label) != count:
                raise InputError(f"label must be one label, or one for each row of {name}")
            return q, [self.position(one) for one in label]
        return q, [self.position(label)] * count

    def refuse_impossible_answers(self, answers: FloatArray, positions: Sequence[int], name: str) -> None:
        """Raise InputError if a row of ``answers`` (m, k) cannot come from the law of the label at its position."""
        supports = cached_supports(self.classes)
        count = int(supports.excluded_answers(self.classes, answers, np.array(positions, dtype=np.intp)).sum())
        if count:
            raise InputError(
                f"{name}: {count} of {len(answers)} answer(s) cannot come from the law of their label, which fixes "
                "some entries or combinations of entries, and the guarantee is about that law. Give the answers that "
                "the class laws were made for, or design a mechanism for laws that allow these"
            )

    def position(self, label: Any) -> int:
        """Position of a label among ``labels``; refuse a label that is not one of them."""
        position = self.classes.places.get(str(label))
        if position is None:
            raise InputError("label is not one of this mechanism's labels")
        return position

    # ------------------------------------------------------------------ how private it is

    def curve(self, epsilon: Any, notion: str = "dp", *, scope: str | None = None) -> PrivacyCurve:
        """δ(ε) of the ideal output laws, exact: real-valued answers, before rounding.

        ``scope`` as in :func:`shoal.privacy_curve`, by default that of the design; of several answers about each label
        (``times``) it is the δ of all of them.

        Returns:
            :func:`shoal.privacy_curve` of ``output`` over the mechanism's graph.

        >>> import shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
        >>> graph = shoal.NeighborGraph.complete(classes.labels)
        >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
        >>> mechanism.curve(1.0).worst_edge in [("a", "b"), ("b", "a")]
        True
        >>> bool(mechanism.curve(1.0).delta_upper <= 1e-5)
        True
        """
        return privacy_curve([self.output] * self.times, self.graph, epsilon, notion, scope=scope or self.scope)

    def released_curve(self, epsilon: Any, *, scope: str | None = None) -> PrivacyCurve:
        """(ε, δ)-DP of what :meth:`release` gives out: upper ends include rounding and finite precision.

        ``delta`` is that of the ideal law; rounding may make the true δ smaller, so ``delta_lower`` is 0. ``scope`` as
        in :meth:`curve`.

        Returns:
            The curve whose ``delta_upper`` covers released answers.

        >>> import shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
        >>> graph = shoal.NeighborGraph.complete(classes.labels)
        >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
        >>> bool(mechanism.curve(1.0).delta_upper <= mechanism.released_curve(1.0).delta_upper <= 1e-5)
        True
        """
        grid, scalar = validation.grid(epsilon=epsilon)
        ideal = self.curve(grid, scope=scope)
        ends = [
            add_precision_loss(float(log), float(end), self._precision_loss(float(at), ideal.scope))
            for log, end, at in zip(ideal.log_delta_upper, ideal.delta_upper, grid, strict=True)
        ]
        # The loss rises with ε, and δ does not: what holds at a smaller ε of the curve holds here.
        log_upper, delta_upper = (monotone_upper_ends(grid, values) for values in zip(*ends, strict=True))
        none = np.zeros(len(grid))
        curve = replace(ideal, delta_lower=none, delta_upper=delta_upper, log_delta_upper=log_upper)
        return curve.at_first_epsilon() if scalar else curve

    @cached_property
    def certificate(self) -> Certificate:
        """The worst edge at the design's ε, over all edges, from the stored parameters, for the design's scope."""
        return Certificate.of(self.ideal_curve, self._precision_loss(self.epsilon, self.scope), self)

    @cached_property
    def noise_share(self) -> float:
        """Share of the error ρ that is fresh noise, of the label with neighbors where it is least; rounded down."""
        spent = self._entry_mean_squares.sum(axis=1)
        noise = np.broadcast_to(np.trace(self.noise_cov, axis1=1, axis2=2), spent.shape)
        chosen = np.unique(self.pairs)
        share = np.where(spent > 0, noise / np.where(spent > 0, spent, 1.0), 0.0)[chosen].min(initial=1.0)
        return max(float(share) * (1 - 8 * self.n_dims * EPS), 0.0)

    def delta_noise_alone(self, scope: str | None = None) -> float:
        """The δ of the noise by itself, rounded up: answers are constants at their means, known to the attacker."""
        if self.has_constant_answers:
            return (self.certificate if scope in (None, self.scope) else self.certificate_for(scope)).delta_upper
        return self.delta_for(GaussianClasses.deterministic(self.classes.means, self.labels), scope)[0]

    def delta_for(self, answers: GaussianClasses, scope: str | None = None) -> tuple[float, tuple[str, str]]:
        """Upper end of δ at the design's ε, and the worst edge, if true answers had these laws; finite precision
        included. What is done to each label's answer stays as designed."""
        scope, moved = scope or self.scope, self.bias
        if self.gain is not None:
            moved = moved + np.einsum("nij,nj->ni", self.gain, answers.means - self.classes.means)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            ideal = replace(self, classes=answers, shift=moved, mean_grid=None, scope=scope).ideal_curve
        loss = self._precision_loss(self.epsilon, scope)
        return add_precision_loss(float(ideal.log_delta_upper), float(ideal.delta_upper), loss)[1], ideal.worst_edge

    @cached_property
    def insider_error(self) -> FloatArray:
        """(n,) how closely someone who knows all other members' answers has each label's, from what is released.

        The standard deviation of the entry that is known best, in the answers' unit, rounded down, from the rows:
        rounding to the grid is not counted, nor what the size of the noise tells, which depends on all answers.
        (ε, δ) promises nothing about it (:mod:`shoal.mechanism.insider`).

        >>> import numpy as np
        >>> import shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0], [3.0]])
        >>> graph = shoal.NeighborGraph.complete(classes.labels)
        >>> white = shoal.design(classes, graph, "white", epsilon=1.0, rho=4.0)
        >>> print(white.insider_error.round(3))
        [2. 2. 2.]
        >>> mean = shoal.calibrate(classes, graph, "mean", epsilon=1.0, delta=1e-6)
        >>> bool((mean.insider_error < 1e-3).all())
        True
        """
        from shoal.mechanism.insider import insider_error

        error = insider_error(self)
        error.flags.writeable = False
        return error

    def with_certificate(self, certificate: Certificate) -> Mechanism:
        """The same parameters with a certificate that was proved about them; a file does not keep it."""
        twin = copy.copy(self)
        twin.__dict__["certificate"] = certificate
        return twin

    def certificate_for(self, scope: str) -> Certificate:
        """The certificate for ``scope``, ``"answer"`` or ``"table"``; the design may have been made for the other."""
        validation.choice(list(SCOPES), scope=scope)
        if scope == self.scope:
            return self.certificate
        return Certificate.of(self._ideal_curve(scope), self._precision_loss(self.epsilon, scope), self)

    @cached_property
    def ideal_curve(self) -> PrivacyCurve:
        """The worst edge of the output laws at the design's ε and scope: what designs are compared by."""
        return self._ideal_curve(self.scope)

    def _ideal_curve(self, scope: str) -> PrivacyCurve:
        """The worst edge of the output laws at the design's ε for a scope; δ ≤ 1 where no figure can be certified."""
        if len(self.pairs) == 0:
            raise InputError("graph has no edges: no label has a neighbor, so nothing can be certified")
        releases = Releases.collect(self.output, scope, self.times)
        offsets = np.repeat(self.epsilon[:, None], releases.n_directions, axis=1)
        try:
            return worst_curve(releases, self.pairs, self.notion, np.zeros(1), offsets).at_first_epsilon()
        except CertificationError:
            upper = log_delta_brackets(releases, self.pairs, NOTIONS[self.notion], np.zeros(1), offsets)[:, :, 0, 2]
            e, d = np.unravel_index(int(np.argmax(np.nan_to_num(upper, nan=0.0))), upper.shape)
            a, b = self.pairs[e] if d == 0 else self.pairs[e][::-1]
            return PrivacyCurve.vacuous(self.notion, 0.0, (releases.labels[a], releases.labels[b]), scope)

    @cached_property
    def pairs(self) -> IndexArray:
        """(edges, 2) positions of the two labels of every edge of the graph."""
        return Releases.collect(self.classes).edge_positions(self.graph)

    def _precision_loss(self, epsilon: float | FloatArray, scope: str) -> float:
        """What finite precision adds to δ(ε) of the worst edge, for one ε or one per edge."""
        each = np.broadcast_to(epsilon, (len(self.pairs),))
        tv = self.rounding_tv
        together = tv if self.times == 1 else self.times * tv * UP
        return edge_delta_increase(together, self.pairs, each, table=scope == "table")

    @cached_property
    def rounding_tv(self) -> FloatArray:
        """(n,) bound per label on the total variation between what is released and the ideal answer on the same grid.

        1, no claim, where the output law lives on a subspace that depends on rounded parameters: then labels that are
        alike on paper can be told apart by what rounding leaves outside it.
        """
        n, k = self.classes.means.shape
        variances = np.broadcast_to(np.diagonal(self.noise_cov, axis1=1, axis2=2), (n, k))
        tv = label_total_variation(np.sqrt(np.maximum(variances, 0.0)), self.grid)
        tv[self.rests_on_rounding | (variances < 0).any(axis=1)] = 1.0
        tv.flags.writeable = False
        return tv

    @property
    def finite_precision_tv(self) -> float:
        """The largest ``rounding_tv`` of a label with a neighbor; in a composition that of all releases adds up."""
        return float(self.rounding_tv[self.pairs].max(initial=0.0))

    @property
    def rests_on_rounding(self) -> BoolArray:
        """(n,) whether the output law lives on a subspace that depends on rounded parameters, and nothing holds."""
        n = self.classes.n_classes
        singular = np.broadcast_to(~np.isfinite(self.output.condition_number), (n,))
        if self.gain is not None or not singular.any():
            return singular
        return np.asarray(singular & (self.bias.any(axis=1) | np.broadcast_to(needs_jitter(self.noise_cov), (n,))))

    # ------------------------------------------------------------------ files

    def file_parts(self) -> Parts:
        """Header and arrays of the file: every parameter and the graph."""
        header = {
            "format": self.FORMAT,
            "version": self.VERSION,
            "labels": list(self.classes.labels),
            "graph_labels": list(self.graph.labels),
            "notes": list(self.notes),
            "ending": self.ending.name,
            **{name: getattr(self, name) for name in NAMED},
        }
        arrays = {name: values for name in ARRAYS if (values := getattr(self, name)) is not None}
        return header, {"edges": self.graph.edges, **arrays, **law_arrays(self.classes)}

    @classmethod
    def from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Mechanism:
        """The mechanism of a file; a KeyError or a ValueError where there is none."""
        if header.get("outside", 0.0) != 0.0:
            raise ValueError("answers were clipped, which adds to δ")
        mechanism = cls(
            classes=laws_from_arrays(header["labels"], arrays),
            graph=NeighborGraph(header["graph_labels"], arrays["edges"]),
            notes=tuple(header["notes"]),
            ending=Ending[header["ending"]],
            **{name: header[name] for name in NAMED},
            **{name: arrays[name] for name in ARRAYS[:-2]},
            gain=arrays.get("gain"),
            mean_grid=arrays.get("mean_grid"),
        )
        if not mechanism._has_valid_parameters():
            raise ValueError("impossible parameters")
        return mechanism

    def _has_valid_parameters(self) -> bool:
        """Whether all parameters have the shapes, signs and finiteness that a mechanism's have."""
        n, k = self.classes.means.shape
        allowed: list[tuple[FloatArray | None, tuple[tuple[int, ...], ...]]] = [
            (self.epsilon, ((self.graph.n_edges,),)),
            (self.shift, ((n, k), (1, k))),
            (self.noise_cov, ((n, k, k), (1, k, k))),
            (self.budget, ((n,),)),
            (self.gain, ((n, k, k),)),
        ]
        grid, errors = self.mean_grid, self.classes.errors
        return (
            all(
                values is None or (values.dtype == np.float64 and values.shape in shapes and np.isfinite(values).all())
                for values, shapes in allowed
            )
            and (grid is None or (grid.dtype == np.int64 and grid.shape == (n, k) and bool((abs(grid) <= 1074).all())))
            and (errors is None or all(np.isfinite(e).all() and bool((e >= 0).all()) for e in errors))
            and bool((self.epsilon >= 0).all())
            and isinstance(self.method, str)
            and self.notion in NOTIONS
            and self.scope in SCOPES
            and type(self.times) is int
            and self.times >= 1
        )

    def __repr__(self) -> str:
        noise = f", noise {lower(self.noise_share, 2)} of ρ" if self.noise_share < LITTLE_NOISE else ""
        return f"Mechanism({self.method}, {self.classes.n_classes} labels, {self.classes.n_dims} entries{noise})"

    def _repr_html_(self) -> str:
        epsilons = sorted({float(e) for e in self.epsilon})
        rows = [
            ("labels, entries", f"{self.classes.n_classes}, {self.classes.n_dims}"),
            ("ε", ", ".join(exactly(e) for e in epsilons[:4]) + (", …" if len(epsilons) > 4 else "")),
            *describe_guarantee(self),
            ("ρ spent, at most", f"{upper(float(self.rho.max()))}"),
            *(("note", note) for note in self.notes),
        ]
        return html_table(f"Mechanism ({self.method})", (), rows)
