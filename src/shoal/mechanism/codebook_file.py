"""The file of a codebook: arrays and a JSON header in one zip, sealed by a digest; no pickle.

What all groups hold lies in flat arrays, group after group. A file whose probabilities do not keep its ε is refused,
whatever its digest says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import archive
from shoal.errors import InputError
from shoal.laws.crowds import means
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.odds import WHOLE, holds

if TYPE_CHECKING:
    from shoal.mechanism.codebook import Codebook

#: Version of the file format; files of another version are refused.
VERSION = 2
FORMAT = "shoal codebook"


def fields(content: bytes, name: str) -> dict[str, Any]:
    """The fields of a codebook from the content of its file; ``name`` is what messages call it."""
    header, arrays = archive.unpacked(content, FORMAT, VERSION, name)
    try:
        parameters = _fields(header, arrays)
        possible = _possible(parameters)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{name} lacks a part of a codebook") from error
    except ValueError:
        possible = False
    if not possible:
        raise InputError(f"{name} holds parameters that no codebook has")
    return parameters


def parts(book: Codebook) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of the file: every parameter and the graph."""
    groups = book.groups
    arrays = {
        "edges": book.graph.edges,
        "answers": book.answers,
        "weights": book.weights,
        "members": np.concatenate([g.members for g in groups]).astype(np.int64),
        "sizes": np.array([g.counts.shape for g in groups], dtype=np.int64),
        "counts": np.concatenate([g.counts.ravel() for g in groups]),
        "curves": np.concatenate([g.curves for g in groups]),
        "bounds": np.array([g.lower_bound for g in groups]),
    }
    header = {
        "format": FORMAT,
        "version": VERSION,
        "labels": list(book.labels),
        "epsilon": book.epsilon,
        "scope": book.scope,
        "objective": book.objective,
    }
    return header, arrays


def _fields(header: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    groups, label, cell, row = [], 0, 0, 0
    for (n, m), bound in zip(arrays["sizes"].tolist(), arrays["bounds"].tolist(), strict=True):
        groups.append(
            {
                "members": arrays["members"][label : label + n].astype(np.intp),
                "counts": arrays["counts"][cell : cell + n * m].reshape(n, m),
                "curves": arrays["curves"][row : row + m],
                "lower_bound": bound,
            }
        )
        label, cell, row = label + n, cell + n * m, row + m
    for group in groups:
        for part in ("members", "counts", "curves"):
            group[part].flags.writeable = False
    return {
        "graph": NeighborGraph(header["labels"], arrays["edges"]),
        "answers": arrays["answers"],
        "epsilon": header["epsilon"],
        "scope": header["scope"],
        "objective": header["objective"],
        "weights": arrays["weights"],
        "groups": groups,
    }


def _possible(found: dict[str, Any]) -> bool:
    """Whether shapes and signs are those of a codebook, and its odds keep its ε."""
    epsilon = found["epsilon"]
    if found["scope"] not in ("answer", "table"):
        return False
    if epsilon is None:
        return _means(found)
    if not (isinstance(epsilon, float) and 0.0 < epsilon < np.inf):
        return False
    each = epsilon if found["scope"] == "answer" else epsilon / 2.0
    return _holds(found, lambda group: holds(group["counts"], each))


def _means(found: dict[str, Any]) -> bool:
    """Whether every group has one curve for all: the exactly rounded mean of its members."""
    if not _holds(found, lambda group: group["counts"].shape[1] == 1 and bool((group["counts"] == WHOLE).all())):
        return False
    number = np.empty(len(found["answers"]), dtype=np.int64)
    for c, group in enumerate(found["groups"]):
        number[group["members"]] = c
    return np.array_equal(means(found["answers"], number), np.concatenate([g["curves"] for g in found["groups"]]))


def _holds(found: dict[str, Any], kept: Callable[[dict[str, Any]], bool]) -> bool:
    """Whether shapes and signs are those of a codebook, and every group keeps what it promises."""
    graph: NeighborGraph = found["graph"]
    answers, weights, groups = found["answers"], found["weights"], found["groups"]
    members = np.concatenate([group["members"] for group in groups])
    joined = graph.components
    return (
        found["objective"] in ("mean", "worst")
        and answers.dtype == weights.dtype == np.float64
        and answers.ndim == 2
        and weights.shape == (len(answers),) == (graph.n_labels,)
        and bool(np.isfinite(answers).all() and np.isfinite(weights).all() and (weights > 0).all())
        and sorted(members.tolist()) == list(range(graph.n_labels))
        and len(groups) == int(joined.max(initial=-1)) + 1
        and all(len(np.unique(joined[group["members"]])) == 1 for group in groups)
        and all(
            group["curves"].dtype == np.float64
            and group["curves"].shape == (group["counts"].shape[1], answers.shape[1])
            and bool(np.isfinite(group["curves"]).all())
            and kept(group)
            and 0.0 <= group["lower_bound"] < np.inf
            for group in groups
        )
    )
