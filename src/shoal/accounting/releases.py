"""What was released about the same labels: one family of laws or several composed, and the spectra of its edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.accounting.edges import EdgeBatch
from shoal.accounting.spectrum import EdgeSpectra, edge_spectra
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.numerics.matrices import EPS
from shoal.validation import FloatArray

Prior = Mapping[str, float] | Sequence[float] | None
#: What leaves: one answer about a hidden label, or the answers about all of them (docs/theory.md, section 10).
SCOPES = ("answer", "table")


class EdgeSource(Protocol):
    """Whatever can give the spectra of edges, named by pairs of positions in ``labels``."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    def spectra(self, pairs: NDArray[np.integer], *, precise: bool = False) -> EdgeBatch: ...


@dataclass(frozen=True)
class Releases:
    """Independent releases about the same label, equal ones counted once with their multiplicity.

    Composition is exact because the losses of independent releases add: spectra are laid side by side
    (docs/theory.md, section 5). In a table both rows of a pair count: with the rows of A and B exchanged, the loss is
    L_{A→B} + L_{B→A}, one law for both directions, so the two directions' spectra are laid side by side as well.
    """

    families: tuple[GaussianClasses, ...]
    times: FloatArray
    labels: tuple[str, ...]
    scope: str = "answer"

    @classmethod
    def collect(cls, released: Any, scope: str = "answer", times: int = 1) -> Releases:
        """Return the releases of a GaussianClasses, of anything with an ``output`` family, or of a sequence of these.

        ``times`` counts all of it so often.
        """
        validation.choice(list(SCOPES), scope=scope)
        items = list(released) if isinstance(released, (list, tuple)) else [released]
        if not items:
            raise InputError("classes must hold at least one release")
        counted: dict[int, tuple[GaussianClasses, int]] = {}
        for item in items:
            family = item if isinstance(item, GaussianClasses) else getattr(item, "output", None)
            if not isinstance(family, GaussianClasses):
                raise InputError("classes must be a GaussianClasses, a mechanism, or a sequence of these")
            known = counted.get(id(family))
            counted[id(family)] = (family, known[1] + 1 if known else 1)
        families = tuple(family for family, _ in counted.values())
        labels = families[0].labels
        if any(f.labels != labels for f in families):
            raise InputError("classes: all releases must have the same labels in the same order")
        return cls(families, np.array([float(n * times) for _, n in counted.values()]), labels, scope)

    @property
    def n_directions(self) -> int:
        """The number of losses of an edge: X → X' and X' → X, or one of exchanging the two in a table."""
        return 1 if self.scope == "table" else 2

    def epsilon_offsets(self, pairs: NDArray[np.intp], prior: Prior = None) -> FloatArray:
        """Return the shifts of ε (edges, directions) that a prior brings; zeros without one."""
        if self.scope == "answer":
            return prior_offsets(prior, self.labels, pairs)
        if prior is not None:
            raise InputError(
                "prior: the promise of a table is for assignments of rows to labels that are equally likely; leave it "
                "out, or ask for scope='answer'"
            )
        return np.zeros((len(pairs), 1))

    def edge_positions(self, graph: NeighborGraph) -> NDArray[np.intp]:
        """Return the graph's edges as positions (n_edges, 2) in these families' labels."""
        if not isinstance(graph, NeighborGraph):
            raise InputError("graph must be a NeighborGraph")
        if graph.labels == self.labels:
            return graph.edges.astype(np.intp)
        position = {name: i for i, name in enumerate(self.labels)}
        if set(position) != set(graph.labels):
            extra, missing = len(set(graph.labels) - set(position)), len(set(position) - set(graph.labels))
            raise InputError(
                f"graph and classes must have the same labels: {extra} of the graph's are not in classes, "
                f"{missing} of the classes' are not in graph"
            )
        return np.array([position[name] for name in graph.labels], dtype=np.intp)[graph.edges]

    def spectra(self, pairs: NDArray[np.integer], *, precise: bool = False) -> EdgeBatch:
        """Return the spectra of all releases for a block of edges; for a table, of both directions."""
        parts = [edge_spectra(family, pairs, precise=precise) for family in self.families]
        times = self.times
        if self.scope == "table":
            parts, times = [*parts, *(part.reverse() for part in parts)], np.tile(times, 2)
        return stack_spectra(parts, np.repeat(times[:, None], len(pairs), axis=1))


def stack_spectra(parts: Sequence[EdgeSpectra], times: FloatArray) -> EdgeBatch:
    """Return the spectra of releases whose losses add, for the same edges, as one batch.

    ``times`` (releases, edges) counts each release on each edge.
    """
    n_edges, width = times.shape[1], max(part.lam.shape[1] for part in parts)
    lam, g, w, lam_error, w_error = np.zeros((5, len(parts), n_edges, width))
    disjoint, everywhere = np.zeros(n_edges, dtype=bool), np.arange(n_edges)
    for r, part in enumerate(parts):
        EdgeSpectra(lam[r], g[r], w[r], lam_error[r], w_error[r], disjoint).write_rows(everywhere, part)
        disjoint |= part.disjoint & (times[r] > 0)
    return EdgeBatch(lam, g, w, lam_error, w_error, disjoint, np.ascontiguousarray(times))


def prior_offsets(prior: Prior, labels: tuple[str, ...], pairs: NDArray[np.intp]) -> FloatArray:
    """Return −ln(prior of X / prior of X') per edge and direction, rounded down: the shift of ε (Remark 1)."""
    offsets = np.zeros((len(pairs), 2))
    if prior is None:
        return offsets
    weights = prior_weights(prior, labels)
    if (weights <= 0).any():
        raise InputError("prior must be above 0 for every label: an edge's ε shifts by its logarithm")
    one, two = np.log(weights[pairs[:, 0]]), np.log(weights[pairs[:, 1]])
    # δ falls with ε, so the shift is rounded down: where it nearly cancels ε, its own rounding is all that is left.
    lost = 4 * EPS * (1 + np.abs(one) + np.abs(two))
    offsets[:, 0] = two - one - lost
    offsets[:, 1] = one - two - lost
    return offsets


def prior_weights(prior: Prior, labels: tuple[str, ...]) -> FloatArray:
    """Return the prior (n,) in label order, checked to be a probability distribution; uniform by default."""
    if prior is None:
        return np.full(len(labels), 1.0 / len(labels))
    try:
        weights = np.array(validation.by_label(labels, prior=prior), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("prior must be one number per label") from error
    if weights.shape != (len(labels),) or not np.isfinite(weights).all():
        raise InputError(f"prior must hold {len(labels)} finite numbers, one per label")
    if (weights < 0).any() or abs(weights.sum() - 1) > 1e-6:
        raise InputError("prior must be non-negative and sum to 1")
    return np.asarray(weights / weights.sum())
