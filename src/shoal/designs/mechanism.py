"""A designed mechanism: what is done to each label's answer, what it costs, and how private the result is.

    q̃ = q + shift + gain (q − μ) + noise,   noise ~ N(0, noise_cov)

Everything a claim rests on is recomputed from these stored, rounded parameters: the output laws, the error spent and
the certificate. ``release`` draws from a cryptographic source and rounds q̃ to a grid; what that costs is part of the
certificate (docs/theory.md, section 9). A mechanism file holds the class laws and must be guarded like the data they
came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shoal import archive, validation
from shoal.accounting.curve import NOTIONS, PrivacyCurve, brackets, privacy_curve, round_up, worst_over_edges
from shoal.accounting.releases import Releases
from shoal.accounting.spectrum import supports_of
from shoal.classes import GaussianClasses
from shoal.designs.certificate import Certificate, released
from shoal.designs.moves import Moves
from shoal.designs.problem import Problem, square_root
from shoal.errors import CertificationError, InputError
from shoal.graph import NeighborGraph
from shoal.noise.affine import ExactMap
from shoal.noise.experiment import NotPrivate, seeded_noise
from shoal.noise.factor import JITTER, jittered
from shoal.noise.grid import Grid
from shoal.noise.precision import edge_loss, label_tv
from shoal.noise.source import standard_normals
from shoal.validation import BoolArray, FloatArray, IndexArray

#: Version of the file format; files of a newer version are refused.
VERSION = 1
FORMAT = "shoal mechanism"
#: Edges up to which a notebook computes a certificate to show it.
SHOWN_EDGES = 20_000
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Mechanism:
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
    weights: FloatArray
    lower_bound: float
    notes: tuple[str, ...] = ()
    history: FloatArray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(
        cls,
        method: str,
        problem: Problem,
        moves: Moves,
        *,
        lower_bound: float,
        notes: tuple[str, ...] = (),
        history: FloatArray | None = None,
    ) -> Mechanism:
        """Turn moves into parameters in the user's coordinates, shrunk by a rounding's width if they overspend."""
        scale = problem.scale
        for attempt in range(60):
            inside = _shrunk(moves, 1.0 - (2.0**attempt - 1.0) * 4 * EPS)
            gain, noise = _gain_and_noise(problem, inside)
            mechanism = cls(
                method=method,
                classes=problem.original,
                graph=problem.graph,
                epsilon=problem.epsilons[:, 0].copy(),
                notion=problem.notion,
                shift=inside.shift / scale,
                gain=None if gain is None else gain / scale[:, None] * scale[None, :],
                noise_cov=noise / scale[:, None] / scale[None, :],
                budget=problem.budgets / problem.n_dims,
                weights=scale**2,
                lower_bound=lower_bound,
                notes=notes,
                history=np.empty(0) if history is None else history,
            )
            if (mechanism.weighted_rho <= mechanism.budget).all():
                return mechanism
        raise InputError("rho is too small for its noise_floor: the budget cannot be met in double precision")

    # ------------------------------------------------------------------ what it does

    @cached_property
    def output(self) -> GaussianClasses:
        """Laws of the released answer, from the stored parameters."""
        if self.gain is None and not self.shift.any():
            first = self.noise_cov[0]
            if len(self.noise_cov) == 1 or (self.noise_cov == first).all():
                diagonal = np.diagonal(first)
                output = self.classes.with_noise(diagonal if (first == np.diag(diagonal)).all() else first)
                error = 2 * EPS * np.abs(output.stored_covs) + self._drawn_differently
                return output.doubted(error, np.zeros(1)) if first.any() else output
        means = self.classes.means + self.shift
        covs, size = self.classes.stored_covs, np.abs(self.classes.stored_covs)
        if self.gain is not None:
            # As a square: a product of three would not stay positive semidefinite where the map shrinks much.
            kept = np.eye(self.classes.n_dims) + self.gain
            moved, most = kept @ self._roots, np.abs(kept) @ np.abs(self._roots)
            covs, size = moved @ np.swapaxes(moved, 1, 2), most @ np.swapaxes(most, 1, 2)
        covs = covs + self.noise_cov
        output = GaussianClasses(means, 0.5 * (covs + np.swapaxes(covs, 1, 2)), self.classes.labels)
        # The law that is really released differs by the rounding of these sums; the accounting is told by how much.
        rounding = 8 * self.classes.n_dims * EPS
        return output.doubted(
            rounding * (size + np.abs(self.noise_cov)) + self._drawn_differently,
            EPS * (np.abs(self.classes.means) + np.abs(self.shift)),
        )

    @property
    def _drawn_differently(self) -> FloatArray:
        """(n or 1, k, k) bound on what a release adds to a noise covariance that rounding made singular."""
        k = self.classes.n_dims
        diagonal = np.diagonal(self.noise_cov, axis1=1, axis2=2)
        spread = (self.noise_cov != diagonal[:, :, None] * np.eye(k)).any(axis=(1, 2))
        return (JITTER + 1) * k * EPS * np.where(spread[:, None], diagonal, 0.0)[:, :, None] * np.eye(k)

    @cached_property
    def _roots(self) -> FloatArray:
        """(n or 1, k, k) factors of the input covariances: triangular, or symmetric where they are singular."""
        whole = np.isfinite(self.classes.condition)
        factors = self.classes.cholesky
        return (
            factors if whole.all() else np.where(whole[:, None, None], factors, square_root(self.classes.stored_covs))
        )

    @cached_property
    def _entry_errors(self) -> FloatArray:
        """(n, k) mean squared error of each entry."""
        n, k = self.classes.means.shape
        total = self.shift**2 + np.diagonal(self.noise_cov, axis1=1, axis2=2)
        if self.gain is not None:
            moved = ((self.gain @ self._roots) ** 2).sum(axis=2)
            most = ((np.abs(self.gain) @ np.abs(self._roots)) ** 2).sum(axis=2)
            total = total + moved + 8 * k * EPS * most
        return np.asarray(np.broadcast_to(total, (n, k)) * (1 + 4 * k * EPS))

    @property
    def rho(self) -> FloatArray:
        """(n,) mean squared error per entry that each label spends, rounded up."""
        return np.asarray(self._entry_errors.mean(axis=1))

    @property
    def weighted_rho(self) -> FloatArray:
        """(n,) the same with the entries' weights: what is held against the budget."""
        return np.asarray((self._entry_errors * self.weights).mean(axis=1))

    @property
    def bias(self) -> FloatArray:
        """(n, k) expected released answer minus expected true answer."""
        return np.array(np.broadcast_to(self.shift, self.classes.means.shape))

    def release(self, q: Any, label: Any) -> FloatArray:
        """The answer to give out for a true answer ``q`` about ``label``: shape (k,), on the mechanism's grid.

        A batch is (m, k) with one label for all of it or a sequence of m labels. The noise comes from a cryptographic
        source and takes no seed; all arithmetic before the rounding is exact, and the same work is done for every
        label. What is promised about the result is ``certificate`` and ``released_curve``, for one release: the same
        answer released twice is two releases.

        An answer that the label's law excludes is refused, since no promise is about it: an entry without variance must
        be the label's constant exactly, and what a singular covariance fixes must hold up to the rounding of a computed
        answer.
        """
        answers, positions = self._request(q, label)
        self.refuse_excluded(np.atleast_2d(answers), [self.classes.labels[i] for i in positions], "q")
        exact = self._exact  # refuses what cannot be drawn before anything is
        out = exact.released(np.atleast_2d(answers), positions, standard_normals(answers.size))
        return out.reshape(answers.shape)

    def prepare(self) -> None:
        """Compute now what the first release would: every label's factors and the cost of finite precision."""
        _ = self._exact, self.precision_tv

    def sample(self, answers: Any, label: Any, *, seed: int) -> NotPrivate:
        """Answers with noise from a seeded generator: for experiments and tests, NOT private, and marked as such.

        ``answers`` is (k,) or (m, k). Neither rounded nor drawn from a cryptographic source; see :meth:`release`.
        """
        q, _ = self._request(answers, label, name="answers")
        i = self._position(label)
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
        return values.shape[1:] == (self.classes.n_dims,) and self._grid.holds(values)

    @cached_property
    def _grid(self) -> Grid:
        std = np.sqrt(np.broadcast_to(self.output.stored_variances, self.output.means.shape))
        return Grid.of(self.output.means, std)

    @cached_property
    def _exact(self) -> ExactMap:
        """All labels' parameters as integers, prepared together so that no label's first release takes longer."""
        return ExactMap.of(self.classes.means, self.bias, self.gain, self.noise_cov, self._grid)

    def _request(self, answers: Any, label: Any, name: str = "q") -> tuple[FloatArray, list[int]]:
        """Checked answers and the position of each one's label; nothing is drawn before this."""
        q = validation.array(ndim=(1, 2), **{name: answers})
        k = self.classes.n_dims
        if q.shape[-1] != k:
            raise InputError(f"{name} must have {k} entries")
        count = 1 if q.ndim == 1 else len(q)
        if isinstance(label, (list, tuple, np.ndarray)) and np.ndim(label) > 0:
            if q.ndim == 1 or len(label) != count:
                raise InputError(f"label must be one label, or one for each row of {name}")
            return q, [self._position(one) for one in label]
        return q, [self._position(label)] * count

    def refuse_excluded(self, answers: FloatArray, labels: Sequence[Any], name: str) -> None:
        """Raise where an answer, (m, k) in all, cannot come from the law of its label."""
        positions = np.array([self._position(label) for label in labels], dtype=np.intp)
        count = int(supports_of(self.classes).excluded(self.classes, answers, positions).sum())
        if count:
            raise InputError(
                f"{name}: {count} of {len(answers)} answer(s) cannot come from the law of their label, which fixes "
                "some entries or combinations of entries, and the guarantee is about that law. Give the answers that "
                "the class laws were made for, or design a mechanism for laws that allow these"
            )

    def _position(self, label: Any) -> int:
        found = self._places.get(str(label))
        if found is None:
            raise InputError("label is not one of this mechanism's labels")
        return found

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.classes.labels)}

    # ------------------------------------------------------------------ how private it is

    def curve(self, epsilon: Any, notion: str = "dp") -> PrivacyCurve:
        """δ(ε) of the ideal output laws, exact: real-valued answers, before rounding."""
        return privacy_curve(self.output, self.graph, epsilon, notion)

    def released_curve(self, epsilon: Any) -> PrivacyCurve:
        """(ε, δ)-DP of what :meth:`release` gives out: upper ends include rounding and finite precision.

        ``delta`` is that of the ideal law; rounding may make the true δ smaller, so ``delta_lower`` is 0.
        """
        ideal = self.curve(epsilon)
        losses = np.array([self._loss(float(one)) for one in np.atleast_1d(ideal.epsilon)])
        return released(ideal, losses)

    @cached_property
    def certificate(self) -> Certificate:
        """The worst edge at the design's ε, over all edges, from the stored parameters."""
        return Certificate.of(self._ideal, self._loss(self.epsilon), self.lower_bound)

    @cached_property
    def _ideal(self) -> PrivacyCurve:
        """The worst edge of the ideal output laws at the design's ε: what designs are compared by.

        δ ≤ 1, which claims nothing, where no figure can be certified.
        """
        releases = Releases.of(self.output)
        offsets = np.repeat(self.epsilon[:, None], 2, axis=1)
        try:
            return worst_over_edges(releases, self._pairs, self.notion, np.zeros(1), offsets).scalar()
        except CertificationError:
            upper = brackets(releases, self._pairs, NOTIONS[self.notion], np.zeros(1), offsets)[:, :, 0, 2]
            e, d = np.unravel_index(int(np.argmax(np.nan_to_num(upper, nan=0.0))), upper.shape)
            a, b = self._pairs[e] if d == 0 else self._pairs[e][::-1]
            edge = releases.labels[a], releases.labels[b]
            return PrivacyCurve(self.notion, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, edge)

    @cached_property
    def _pairs(self) -> IndexArray:
        return Releases.of(self.classes).pairs(self.graph)

    def _loss(self, epsilon: float | FloatArray) -> float:
        return edge_loss(self.precision_tv, self._pairs, np.broadcast_to(epsilon, (len(self._pairs),)))

    @cached_property
    def precision_tv(self) -> FloatArray:
        """(n,) bound on the total variation between a label's released answer and the ideal one, rounded alike.

        1, no claim, where the output law lives on a subspace that depends on rounded parameters: then labels that are
        alike on paper can be told apart by what rounding leaves outside it.
        """
        n, k = self.classes.means.shape
        variances = np.broadcast_to(np.diagonal(self.noise_cov, axis1=1, axis2=2), (n, k))
        tv = label_tv(np.sqrt(np.maximum(variances, 0.0)), self.grid)
        tv[self._rests_on_rounding | (variances < 0).any(axis=1)] = 1.0
        tv.flags.writeable = False
        return tv

    @property
    def finite_precision_tv(self) -> float:
        """The largest ``precision_tv`` of a label with a neighbor; in a composition that of all releases adds up."""
        return float(self.precision_tv[self._pairs].max(initial=0.0))

    @property
    def _rests_on_rounding(self) -> BoolArray:
        n = self.classes.n_classes
        singular = np.broadcast_to(~np.isfinite(self.output.condition), (n,))
        if self.gain is not None or not singular.any():
            return singular
        return np.asarray(singular & (self.bias.any(axis=1) | np.broadcast_to(jittered(self.noise_cov), (n,))))

    # ------------------------------------------------------------------ files

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every parameter and the graph: the mechanism's name wherever it is recorded."""
        arrays, header = self._parts()
        return archive.digest(header, arrays)

    def save(self, path: str | Path) -> None:
        """Write a versioned file: arrays and a JSON header in one zip, with a digest over all of it; no pickle."""
        Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that :meth:`save` writes."""
        arrays, header = self._parts()
        return archive.packed(header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Mechanism:
        """Read a file back; one that is damaged, altered or of a newer version is refused.

        What is claimed is recomputed from the parameters, so a file that was altered and sealed anew can never carry a
        better certificate than it deserves.
        """
        return cls.from_bytes(archive.content_of(path, FORMAT), f"path: {Path(path).name}")

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "content") -> Mechanism:
        """A mechanism from the content of its file; ``name`` is what messages call it."""
        header, arrays = archive.unpacked(content, FORMAT, VERSION, name)
        try:
            mechanism = cls._from_parts(header, arrays)
        except (KeyError, TypeError, IndexError) as error:
            raise InputError(f"{name} lacks a part of a mechanism") from error
        if not mechanism._possible:
            raise InputError(f"{name} holds parameters that no mechanism has")
        return mechanism

    @property
    def _possible(self) -> bool:
        """Whether shapes, signs and finiteness are those of a mechanism."""
        n, k = self.classes.means.shape
        floats: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
            "epsilon": (self.epsilon, ((self.graph.n_edges,),)),
            "shift": (self.shift, ((n, k), (1, k))),
            "noise_cov": (self.noise_cov, ((n, k, k), (1, k, k))),
            "budget": (self.budget, ((n,),)),
            "weights": (self.weights, ((k,),)),
        }
        if self.gain is not None:
            floats["gain"] = self.gain, ((n, k, k),)
        return (
            all(v.dtype == np.float64 and v.shape in shapes and np.isfinite(v).all() for v, shapes in floats.values())
            and bool((self.epsilon >= 0).all())
            and bool((self.weights > 0).all())
            and isinstance(self.method, str)
            and self.notion in NOTIONS
            and isinstance(self.lower_bound, float)
            and 0.0 <= self.lower_bound <= 1.0
        )

    def _parts(self) -> tuple[dict[str, FloatArray], dict[str, Any]]:
        arrays: dict[str, Any] = {
            "means": self.classes.means,
            "edges": self.graph.edges,
            "epsilon": self.epsilon,
            "shift": self.shift,
            "noise_cov": self.noise_cov,
            "budget": self.budget,
            "weights": self.weights,
            "history": self.history,
        }
        if self.classes.is_diagonal:
            arrays["variances"] = self.classes.stored_variances
        else:
            arrays["covs"] = self.classes.stored_covs
        if self.gain is not None:
            arrays["gain"] = self.gain
        header = {
            "format": FORMAT,
            "version": VERSION,
            "method": self.method,
            "notion": self.notion,
            "labels": list(self.classes.labels),
            "graph_labels": list(self.graph.labels),
            "lower_bound": self.lower_bound,
            "notes": list(self.notes),
        }
        return arrays, header

    @classmethod
    def _from_parts(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Mechanism:
        labels = header["labels"]
        if "variances" in arrays:
            variances = arrays["variances"]
            shared = len(variances) == 1 and len(labels) > 1
            classes = GaussianClasses.diagonal(arrays["means"], variances[0] if shared else variances, labels)
        else:
            covs = arrays["covs"]
            classes = GaussianClasses(arrays["means"], covs[0] if len(covs) == 1 else covs, labels)
        return cls(
            method=header["method"],
            classes=classes,
            graph=NeighborGraph(header["graph_labels"], arrays["edges"]),
            epsilon=arrays["epsilon"],
            notion=header["notion"],
            shift=arrays["shift"],
            gain=arrays.get("gain"),
            noise_cov=arrays["noise_cov"],
            budget=arrays["budget"],
            weights=arrays["weights"],
            lower_bound=header["lower_bound"],
            notes=tuple(header["notes"]),
            history=arrays["history"],
        )

    def __repr__(self) -> str:
        return f"Mechanism({self.method}, {self.classes.n_classes} labels, {self.classes.n_dims} entries)"

    def _repr_html_(self) -> str:
        """What it promises and spends; the certificate of a large graph only once it has been computed."""
        from shoal.notebook import table

        known = "certificate" in self.__dict__ or self.graph.n_edges <= SHOWN_EDGES
        epsilons = sorted({float(e) for e in self.epsilon})
        rows = [
            ("labels, entries", f"{self.classes.n_classes}, {self.classes.n_dims}"),
            ("ε", ", ".join(f"{e:g}" for e in epsilons[:4]) + (", …" if len(epsilons) > 4 else "")),
            ("certificate", self.certificate if known else "not computed yet: mechanism.certificate"),
            ("ρ spent, at most", f"{round_up(float(self.rho.max())):.4g}"),
            *(("note", note) for note in self.notes),
        ]
        return table(f"Mechanism ({self.method})", (), rows)

    def plot(self, epsilon: Any = None, axes: Any = None) -> Any:
        """Draw δ(ε) of what is released, and of the answers without it, with matplotlib and return the axes.

        ``epsilon`` is a grid; by default from 0 to three times the design's.
        """
        from shoal.notebook import axes_or_new, draw_deltas

        if epsilon is None:
            epsilon = np.linspace(0.0, 3.0 * (float(self.epsilon.max(initial=0.0)) or 1.0), 25)
        grid, _ = validation.grid(epsilon=epsilon)
        before = privacy_curve(self.classes, self.graph, grid).delta_upper
        lines = {f"released ({self.method})": self.released_curve(grid).delta_upper, "as it is": before}
        return draw_deltas(axes_or_new(axes), grid, lines, "ε")


def certified(problem: Problem, moves: Moves) -> float:
    """Upper end of the ideal law's worst ln δ once the moves are a mechanism; 0 where no claim can be made."""
    mechanism = Mechanism.of("", problem, moves, lower_bound=0.0)
    if mechanism._rests_on_rounding[mechanism._pairs].any():
        return 0.0
    return float(mechanism._ideal.log_delta_upper)


def _shrunk(moves: Moves, factor: float) -> Moves:
    mapped = None if moves.map is None else moves.map * factor
    return Moves(moves.shift * factor, mapped, moves.noise * factor)


def _gain_and_noise(problem: Problem, moves: Moves) -> tuple[FloatArray | None, FloatArray]:
    """Gain B Σ^{−1/2} on the support of each law; what B asks for outside it is fresh noise."""
    noise = moves.noise @ np.swapaxes(moves.noise, 1, 2) + problem.floor_cov
    if moves.map is None:
        return None, noise
    values, vectors = np.linalg.eigh(problem.classes.stored_covs)
    there = values > 1e-13 * np.maximum(values[:, -1:], 1e-300)
    inverse = np.where(there, 1.0 / np.sqrt(np.where(there, values, 1.0)), 0.0)
    gain = moves.map @ ((vectors * inverse[:, None, :]) @ np.swapaxes(vectors, 1, 2))
    outside = moves.map @ (vectors * (~there)[:, None, :])
    noise = noise + outside @ np.swapaxes(outside, 1, 2)
    return gain, 0.5 * (noise + np.swapaxes(noise, 1, 2))
