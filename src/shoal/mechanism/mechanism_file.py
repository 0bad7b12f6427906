"""The file of a mechanism: arrays and a JSON header in one zip, sealed by a digest; no pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import archive
from shoal.accounting.curve import NOTIONS
from shoal.accounting.releases import SCOPES
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.mechanism.mechanism import Mechanism

#: Version of the file format; files of another version are refused.
VERSION = 1
FORMAT = "shoal mechanism"
#: Parts that a file holds only where they say something: files without them stay as they were, digest included.
OPTIONAL = ("gain", "mean_grid")


def fields(content: bytes, name: str) -> dict[str, Any]:
    """The fields of a mechanism from the content of its file; ``name`` is what messages call it."""
    header, arrays = archive.unpacked(content, FORMAT, VERSION, name)
    try:
        parameters = _fields(header, arrays)
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"{name} lacks a part of a mechanism") from error
    if not _possible(parameters):
        raise InputError(f"{name} holds parameters that no mechanism has")
    return parameters


def law_arrays(classes: GaussianClasses) -> dict[str, FloatArray]:
    """All that is stored of laws, and what is known of their errors."""
    stored = {"variances": classes.stored_variances} if classes.is_diagonal else {"covs": classes.stored_covs}
    errors = {} if classes.errors is None else dict(zip(("cov_error", "mean_error"), classes.errors, strict=True))
    return {"means": classes.means, **stored, **errors}


def parts(mechanism: Mechanism) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of the file: every parameter and the graph."""
    classes = mechanism.classes
    arrays: dict[str, Any] = {
        "means": classes.means,
        "edges": mechanism.graph.edges,
        "epsilon": mechanism.epsilon,
        "shift": mechanism.shift,
        "noise_cov": mechanism.noise_cov,
        "budget": mechanism.budget,
        "weights": mechanism.weights,
        "history": mechanism.history,
    }
    arrays |= law_arrays(classes)
    for name in OPTIONAL:
        if getattr(mechanism, name) is not None:
            arrays[name] = getattr(mechanism, name)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "method": mechanism.method,
        "notion": mechanism.notion,
        "labels": list(classes.labels),
        "graph_labels": list(mechanism.graph.labels),
        "lower_bound": mechanism.lower_bound,
        "notes": list(mechanism.notes),
    }
    if mechanism.scope != "answer":
        header["scope"] = mechanism.scope
    if mechanism.times != 1:
        header["times"] = mechanism.times
    if mechanism.outside != 0:
        header["outside"] = mechanism.outside
    if mechanism.ending.name != "COMPLETE":
        header["ending"] = mechanism.ending.name
    return header, arrays


def _fields(header: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    labels = header["labels"]
    if "variances" in arrays:
        variances = arrays["variances"]
        shared = len(variances) == 1 and len(labels) > 1
        classes = GaussianClasses.diagonal(arrays["means"], variances[0] if shared else variances, labels)
    else:
        covs = arrays["covs"]
        classes = GaussianClasses(arrays["means"], covs[0] if len(covs) == 1 else covs, labels)
    if "cov_error" in arrays:
        classes = classes.doubted(arrays["cov_error"], arrays["mean_error"])
    return {
        "method": header["method"],
        "classes": classes,
        "graph": NeighborGraph(header["graph_labels"], arrays["edges"]),
        "epsilon": arrays["epsilon"],
        "notion": header["notion"],
        "shift": arrays["shift"],
        "noise_cov": arrays["noise_cov"],
        "budget": arrays["budget"],
        "weights": arrays["weights"],
        "lower_bound": header["lower_bound"],
        "notes": tuple(header["notes"]),
        "history": arrays["history"],
        "scope": header.get("scope", "answer"),
        "times": header.get("times", 1),
        "outside": header.get("outside", 0.0),
        **({"ending": header["ending"]} if "ending" in header else {}),
        **{name: arrays.get(name) for name in OPTIONAL},
    }


def _possible(found: dict[str, Any]) -> bool:
    """Whether shapes, signs and finiteness are those of a mechanism."""
    classes: GaussianClasses = found["classes"]
    n, k = classes.means.shape
    shapes: dict[str, tuple[tuple[int, ...], ...]] = {
        "epsilon": ((found["graph"].n_edges,),),
        "shift": ((n, k), (1, k)),
        "noise_cov": ((n, k, k), (1, k, k)),
        "budget": ((n,),),
        "weights": ((k,),),
    }
    if found["gain"] is not None:
        shapes["gain"] = ((n, k, k),)
    grid, errors = found["mean_grid"], classes.errors
    return (
        all(
            found[name].dtype == np.float64 and found[name].shape in some and np.isfinite(found[name]).all()
            for name, some in shapes.items()
        )
        and (grid is None or (grid.dtype == np.int64 and grid.shape == (n, k) and bool((np.abs(grid) <= 1074).all())))
        and (errors is None or all(np.isfinite(e).all() and bool((e >= 0).all()) for e in errors))
        and bool((found["epsilon"] >= 0).all())
        and bool((found["weights"] > 0).all())
        and isinstance(found["method"], str)
        and found["notion"] in NOTIONS
        and found["scope"] in SCOPES
        and type(found["times"]) is int
        and found["times"] >= 1
        and isinstance(found["outside"], float)
        and 0.0 <= found["outside"] <= 1.0
        and isinstance(found["lower_bound"], float)
        and 0.0 <= found["lower_bound"] <= 1.0
    )
