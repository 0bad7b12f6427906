"""Releases about a label and about its neighbors, seen from the pairs the label belongs to.

Whoever holds everything that was released about A and about B asks whether the two are exchanged. In the world as it
is, each release of a mechanism about A is drawn from A's law and each about B from B's; in the other world the answers
said to be about A are drawn from B's law and those about B from A's. Independent releases add up, so the losses of the
one world against the other, and of the other against the one, are

    Σ_{about A} L_{A→B} + Σ_{about B} L_{B→A}        and        Σ_{about A} L_{B→A} + Σ_{about B} L_{A→B}.

Both count, and δ is their maximum. They have the same law where every mechanism was used equally often about A and
about B, as when whole tables are released. With nothing released about B they are the two directions of A's own
releases: what is true of the pair is never less than what is true of either label by itself.

The second is the first turned around, release by release. So a pair is one edge with two rows per mechanism: its
spectrum A → B, counted as often as it was used about A, and B → A, counted as often as it was used about B. The laws of
the releases may list their labels in any order, as long as all of them know the label and its neighbors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.curve import PrivacyCurve, worst_over_edges
from shoal.accounting.edges import EdgeBatch
from shoal.accounting.releases import side_by_side
from shoal.accounting.spectrum import EdgeSpectra, edge_spectra
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.validation import FloatArray

#: Gives the spectra of one release at the label's edges; called with ``precise``.
SpectraOf = Callable[[bool], EdgeSpectra]


def incident_spectra(
    family: GaussianClasses, label: str, neighbors: Sequence[str], *, precise: bool = False
) -> EdgeSpectra:
    """Spectra of the edges label → neighbor, one row per neighbor in the order given."""
    try:
        rows = [(family.places[label], family.places[other]) for other in neighbors]
    except KeyError:
        raise InputError("label and its neighbors must be labels of every release") from None
    return edge_spectra(family, np.array(rows, dtype=np.intp).reshape(-1, 2), precise=precise)


@dataclass(frozen=True)
class IncidentReleases:
    """Independent releases about ``labels[0]`` and about its neighbors, the labels after it.

    Edge j joins the label to ``labels[j + 1]``. Mechanism r, whose spectra ``parts[r]`` gives, was used
    ``about[r, j]`` times about the label and ``opposite[r, j]`` times about the neighbor.
    """

    labels: tuple[str, ...]
    parts: tuple[SpectraOf, ...]
    about: FloatArray
    opposite: FloatArray

    def spectra(self, pairs: NDArray[np.integer], *, precise: bool = False) -> EdgeBatch:
        """Spectra of all releases for some of the label's edges, in both directions as far as they count."""
        edges = np.asarray(pairs)[:, 1] - 1
        rows: list[EdgeSpectra] = []
        times: list[FloatArray] = []
        for part, about, opposite in zip(self.parts, self.about[:, edges], self.opposite[:, edges], strict=True):
            if not (about.any() or opposite.any()):
                continue
            forth = part(precise).take(edges)
            if not (forth.lam.any() or forth.lam_error.any()):  # equal covariances: both directions are the same
                rows.append(forth)
                times.append(about + opposite)
                continue
            if about.any():
                rows.append(forth)
                times.append(about)
            if opposite.any():
                rows.append(forth.reverse())
                times.append(opposite)
        if not rows:
            rows, times = [EdgeSpectra.empty(len(edges), 1)], [np.zeros(len(edges))]
        return side_by_side(rows, np.array(times))

    def curve(self, epsilons: FloatArray, edges: Sequence[int]) -> PrivacyCurve:
        """Hockey-stick δ at each ε over the given edges, the worse of the two losses of each."""
        pairs = np.array([(0, j + 1) for j in edges], dtype=np.intp)
        return worst_over_edges(self, pairs, "dp", epsilons, np.zeros((len(pairs), 2)))
