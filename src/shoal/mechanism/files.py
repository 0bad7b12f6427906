"""The files of mechanisms, codebooks and laws: arrays and a JSON header in one zip, sealed by a digest; no pickle.

What is claimed is recomputed from the parameters, and parameters that no mechanism has are refused whatever the digest
says: a file that was altered and sealed anew can never carry a better certificate than it deserves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from shoal import archive
from shoal.accounting.curve import NOTIONS
from shoal.accounting.releases import SCOPES
from shoal.errors import InputError
from shoal.files import write_private
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.odds import keeps
from shoal.validation import FloatArray, IndexArray

if TYPE_CHECKING:
    from shoal.mechanism.codebook import Codebook
    from shoal.mechanism.mechanism import Mechanism

#: Header and arrays of a file.
Parts = tuple[dict[str, Any], dict[str, Any]]

#: Fields of a mechanism that are arrays, and of these the ones that may be None; fields in the header.
ARRAYS = ("epsilon", "shift", "noise_cov", "budget", "weights", "history", "gain", "mean_grid")
OPTIONAL = ("gain", "mean_grid")
NAMED = ("method", "notion", "lower_bound", "scope", "times", "outside")


class Stored(ABC):
    """What can be written to a file of its own and read back with the same digest."""

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int]  #: files of another version are refused

    @abstractmethod
    def parts(self) -> Parts:
        """Header and arrays of the file: every parameter and the graph."""

    @classmethod
    @abstractmethod
    def from_parts(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Self:
        """The same from header and arrays; a KeyError where one is missing, a ValueError where one is impossible."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every parameter and the graph: the name wherever it is recorded."""
        return archive.digest(*self.parts())

    def save(self, path: str | Path) -> None:
        """Write a versioned file: arrays and a JSON header in one zip, with a digest over all of it; no pickle.

        >>> import shoal, tempfile
        >>> book = shoal.codebook([[0.0], [1.0]], shoal.NeighborGraph.complete(["a", "b"]), epsilon=2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     book.save(f"{folder}/two.shoal")
        ...     shoal.load(f"{folder}/two.shoal")
        Codebook(2 labels, 1 entries, ε = 2)
        """
        write_private(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that :meth:`save` writes."""
        return archive.packed(*self.parts())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file back; one that is damaged, altered or of another version is refused.

        Returns:
            What was saved, with the same digest.

        >>> import shoal, tempfile
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
        >>> graph = shoal.NeighborGraph.complete(classes.labels)
        >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mechanism.save(f"{folder}/white.shoal")
        ...     shoal.Mechanism.load(f"{folder}/white.shoal").digest == mechanism.digest
        True
        """
        return cls.from_bytes(archive.content_of(path, cls.FORMAT), f"path: {Path(path).name}")

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "content") -> Self:
        """The same from the content of a file; ``name`` is what messages call it."""
        header, arrays = archive.unpacked(content, cls.FORMAT, cls.VERSION, name)
        kind = cls.FORMAT.removeprefix("shoal ")
        try:
            return cls.from_parts(header, arrays)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise InputError(f"{name} lacks a part of a {kind}") from error
        except ValueError as error:
            raise InputError(f"{name} holds parameters that no {kind} has") from error


def load(path: str | Path) -> Mechanism | Codebook:
    """Read what :meth:`Mechanism.save` or :meth:`Codebook.save` wrote.

    A file that is damaged, altered or of another version is refused.

    Returns:
        The mechanism or the codebook, with the digest of the one that was saved.

    >>> import shoal, tempfile
    >>> book = shoal.codebook([[0.0], [1.0]], shoal.NeighborGraph.complete(["a", "b"]), epsilon=2.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book.save(f"{folder}/two.shoal")
    ...     shoal.load(f"{folder}/two.shoal").digest == book.digest
    True
    """
    return from_bytes(archive.content_of(path, "shoal mechanism"), f"path: {Path(path).name}")


def from_bytes(content: bytes, name: str = "content") -> Mechanism | Codebook:
    """The mechanism or the codebook from the content of its file; ``name`` is what messages call it."""
    from shoal.mechanism.codebook import Codebook
    from shoal.mechanism.mechanism import Mechanism

    if archive.form_of(content) == Codebook.FORMAT:
        return Codebook.from_bytes(content, name)
    return Mechanism.from_bytes(content, name)


# ------------------------------------------------------------------ laws


def law_parts(classes: GaussianClasses, pairs: IndexArray) -> Parts:
    """The file of laws and edges, as positions of labels: what a proof is about that is not about a mechanism."""
    arrays = {"means": classes.means, "edges": np.asarray(pairs, dtype=np.int64), **_law_arrays(classes)}
    return {"format": "shoal laws", "version": 1, "labels": list(classes.labels)}, arrays


def _law_arrays(classes: GaussianClasses) -> dict[str, FloatArray]:
    """All that is stored of laws, and what is known of their errors."""
    stored = {"variances": classes.stored_variances} if classes.is_diagonal else {"covs": classes.stored_covs}
    errors = {} if classes.errors is None else dict(zip(("cov_error", "mean_error"), classes.errors, strict=True))
    return {"means": classes.means, **stored, **errors}


def _laws(labels: list[str], arrays: dict[str, Any]) -> GaussianClasses:
    build, stored = (
        (GaussianClasses.diagonal, arrays["variances"]) if "variances" in arrays else (GaussianClasses, arrays["covs"])
    )
    classes = build(arrays["means"], stored[0] if len(stored) == 1 else stored, labels)
    return classes.doubted(arrays["cov_error"], arrays["mean_error"]) if "cov_error" in arrays else classes


# ------------------------------------------------------------------ mechanisms


def mechanism_parts(mechanism: Mechanism) -> Parts:
    """Header and arrays of a mechanism, but for how the search for it ended."""
    arrays = {name: values for name in ARRAYS if (values := getattr(mechanism, name)) is not None}
    header = {
        "format": mechanism.FORMAT,
        "version": mechanism.VERSION,
        "labels": list(mechanism.classes.labels),
        "graph_labels": list(mechanism.graph.labels),
        "notes": list(mechanism.notes),
        **{name: getattr(mechanism, name) for name in NAMED},
    }
    return header, {"edges": mechanism.graph.edges, **arrays, **_law_arrays(mechanism.classes)}


def mechanism_fields(header: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """The fields of a mechanism from the parts of its file; a ValueError where no mechanism has them."""
    fields = {name: arrays.get(name) if name in OPTIONAL else arrays[name] for name in ARRAYS}
    fields |= {name: header[name] for name in NAMED} | {"notes": tuple(header["notes"])}
    fields["classes"] = _laws(header["labels"], arrays)
    fields["graph"] = NeighborGraph(header["graph_labels"], arrays["edges"])
    if not _is_mechanism(fields):
        raise ValueError("impossible parameters")
    return fields


def _is_mechanism(fields: dict[str, Any]) -> bool:
    """Whether shapes, signs and finiteness are those of a mechanism."""
    n, k = fields["classes"].means.shape
    shapes: dict[str, tuple[tuple[int, ...], ...]] = {
        "epsilon": ((fields["graph"].n_edges,),),
        "shift": ((n, k), (1, k)),
        "noise_cov": ((n, k, k), (1, k, k)),
        "budget": ((n,),),
        "weights": ((k,),),
    }
    if fields["gain"] is not None:
        shapes["gain"] = ((n, k, k),)
    grid, errors = fields["mean_grid"], fields["classes"].errors
    return (
        all(
            fields[name].dtype == np.float64 and fields[name].shape in some and np.isfinite(fields[name]).all()
            for name, some in shapes.items()
        )
        and (grid is None or (grid.dtype == np.int64 and grid.shape == (n, k) and bool((np.abs(grid) <= 1074).all())))
        and (errors is None or all(np.isfinite(e).all() and bool((e >= 0).all()) for e in errors))
        and bool((fields["epsilon"] >= 0).all() and (fields["weights"] > 0).all())
        and isinstance(fields["method"], str)
        and fields["notion"] in NOTIONS
        and fields["scope"] in SCOPES
        and type(fields["times"]) is int
        and fields["times"] >= 1
        and all(isinstance(fields[name], float) and 0.0 <= fields[name] <= 1.0 for name in ("outside", "lower_bound"))
    )


# ------------------------------------------------------------------ codebooks


def codebook_parts(book: Codebook) -> Parts:
    """Header and arrays of a codebook: what all crowds hold lies in flat arrays, crowd after crowd."""
    crowds = book.crowds
    arrays = {
        "edges": book.graph.edges,
        "answers": book.answers,
        "members": np.concatenate([c.members for c in crowds]).astype(np.int64),
        "sizes": np.array([c.counts.shape for c in crowds], dtype=np.int64),
        "counts": np.concatenate([c.counts.ravel() for c in crowds]),
        "curves": np.concatenate([c.curves for c in crowds]),
        "bounds": np.array([c.lower_bound for c in crowds]),
    }
    header = {
        "format": book.FORMAT,
        "version": book.VERSION,
        "labels": list(book.labels),
        "epsilon": book.epsilon,
        "scope": book.scope,
    }
    return header, arrays


def codebook_fields(header: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """The fields of a codebook from the parts of its file, ``crowds`` as fields too; a ValueError where the
    probabilities do not keep its ε, or no codebook has such parameters."""
    crowds, label, cell, row = [], 0, 0, 0
    for (n, m), bound in zip(arrays["sizes"].tolist(), arrays["bounds"].tolist(), strict=True):
        crowd = {
            "members": arrays["members"][label : label + n].astype(np.intp),
            "counts": arrays["counts"][cell : cell + n * m].reshape(n, m),
            "curves": arrays["curves"][row : row + m],
        }
        for values in crowd.values():
            values.flags.writeable = False
        crowds.append({**crowd, "lower_bound": bound})
        label, cell, row = label + n, cell + n * m, row + m
    fields = {name: header[name] for name in ("epsilon", "scope")}
    fields |= {"graph": NeighborGraph(header["labels"], arrays["edges"]), "answers": arrays["answers"]}
    if not _is_codebook(**fields, crowds=crowds):
        raise ValueError("impossible parameters")
    return {**fields, "crowds": crowds}


def _is_codebook(
    graph: NeighborGraph, answers: FloatArray, epsilon: Any, scope: Any, crowds: list[dict[str, Any]]
) -> bool:
    """Whether shapes and signs are those of a codebook, and its odds keep its ε."""
    if scope not in SCOPES or not (isinstance(epsilon, float) and 0.0 < epsilon < np.inf):
        return False
    each = epsilon if scope == "answer" else epsilon / 2.0
    members = np.concatenate([crowd["members"] for crowd in crowds])
    joined = graph.components
    return (
        answers.dtype == np.float64
        and answers.ndim == 2
        and len(answers) == graph.n_labels
        and bool(np.isfinite(answers).all())
        and sorted(members.tolist()) == list(range(graph.n_labels))
        and len(crowds) == int(joined.max(initial=-1)) + 1
        and all(len(np.unique(joined[crowd["members"]])) == 1 for crowd in crowds)
        and all(
            crowd["curves"].dtype == np.float64
            and crowd["curves"].shape == (crowd["counts"].shape[1], answers.shape[1])
            and bool(np.isfinite(crowd["curves"]).all())
            and keeps(crowd["counts"], each)
            and 0.0 <= crowd["lower_bound"] < np.inf
            for crowd in crowds
        )
    )
