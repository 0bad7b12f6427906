"""Releases about one label, seen from that label's own edges.

A budget of a label is about the pairs the label belongs to, in both directions, and nothing else. The laws of the
releases may list their labels in any order, as long as all of them know the label and its neighbors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.curve import PrivacyCurve, worst_over_edges
from shoal.accounting.edges import EdgeBlock
from shoal.accounting.releases import side_by_side
from shoal.accounting.spectrum import EdgeSpectra, edge_spectra
from shoal.classes import GaussianClasses
from shoal.errors import InputError
from shoal.validation import FloatArray

#: Gives the spectra of one release at the label's edges; called with ``precise``.
SpectraOf = Callable[[bool], EdgeSpectra]


def incident_spectra(
    family: GaussianClasses, label: str, neighbors: Sequence[str], *, precise: bool = False
) -> EdgeSpectra:
    """Spectra of the edges label → neighbor, one row per neighbor in the order given."""
    position = {name: i for i, name in enumerate(family.labels)}
    try:
        rows = [(position[label], position[other]) for other in neighbors]
    except KeyError:
        raise InputError("label and its neighbors must be labels of every release") from None
    return edge_spectra(family, np.array(rows, dtype=np.intp).reshape(-1, 2), precise=precise)


@dataclass(frozen=True)
class IncidentReleases:
    """Independent releases about ``labels[0]``, whose neighbors are the labels after it.

    Losses of independent releases add, so their spectra are laid side by side (docs/theory.md, section 5). Edge j joins
    the label to ``labels[j]``.
    """

    labels: tuple[str, ...]
    parts: tuple[SpectraOf, ...]
    times: FloatArray

    @property
    def pairs(self) -> NDArray[np.intp]:
        others = np.arange(1, len(self.labels), dtype=np.intp)
        return np.stack([np.zeros_like(others), others], axis=1)

    def spectra(self, pairs: NDArray[np.integer], *, precise: bool = False) -> EdgeBlock:
        """Spectra of all releases for some of the label's edges."""
        rows = np.asarray(pairs)[:, 1] - 1
        chosen = [part(precise).take(rows) for part in self.parts]
        return side_by_side(chosen, np.repeat(self.times[:, None], len(rows), axis=1))

    def curve(self, epsilons: FloatArray) -> PrivacyCurve:
        """Hockey-stick δ over both directions of the label's edges, at each ε."""
        pairs = self.pairs
        return worst_over_edges(self, pairs, "dp", epsilons, np.zeros((len(pairs), 2)))
