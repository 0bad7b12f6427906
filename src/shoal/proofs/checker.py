"""Check a proof file again: ``python checker.py proof.json mechanism-file``.

This is one file on its own. It imports python-flint, NumPy (to read arrays) and the standard library, and nothing of
shoal. It reads the arrays itself, holds their digest against the proof's, forms the laws in exact rational numbers and
encloses δ(ε) of every edge that the proof names, on a route of its own:

    with Σ' = L Lᵀ, H = L⁻¹ΣL⁻ᵀ − I and y = L⁻¹(μ' − μ) in balls, reflections bring the bordered matrix [0 yᵀ; y H] to
    tridiagonal form. The pivots d_j of I − tT from the last to the first give ∏ d_j = det(I − tH) and
    ‖y‖²/d_1 = yᵀ(I − tH)⁻¹y. For Im t ≠ 0 the imaginary part of (1/t)I − T is definite, so that no d_j meets the
    negative axis: the product of their principal roots is the root that is wanted. There are no eigenvalues here.

A statement is refused unless it is shown to hold. Every test below is written that way round, because a comparison
with what is not a number is false. Every pair of labels, in every direction, must be accounted for exactly once: by
laws that are equal, by a bound below the stated δ, or by an enclosure inside the stated one. A proof file holds the
fields listed in ``PROOF`` and no others, each once, with every double written as ``float.hex`` writes it.

Exit status 0 and the theorem on standard output; 1 and the reason on standard error where the proof is refused; 2 and
the reason where a file cannot be read.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import sys
import zipfile
import zlib
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from flint import acb, arb, ctx, fmpq, fmpq_mat

#: Arrays of a file: those that it must hold, and those that it may hold.
FORMATS = {
    "shoal mechanism": (
        {"means", "edges", "epsilon", "shift", "noise_cov", "budget"},
        {"variances", "covs", "cov_error", "mean_error", "gain", "mean_grid"},
    ),
    "shoal laws": ({"means", "edges"}, {"variances", "covs", "cov_error", "mean_error"}),
}
VERSION = 1
#: Fields of a proof, of one enclosure in it by what it was found with, and of a path.
PROOF = {
    "format", "version", "digest", "scope", "epsilon", "delta_lower", "delta_upper", "ideal_upper", "finite_precision",
    "worst_edge", "n_edges", "pairs", "own_graph", "edges", "excluded", "equal", "unsettled", "versions",
}  # fmt: skip
ENCLOSURE = {"edge", "direction", "by", "lower", "upper"}
MORE: dict[str, set[str]] = {
    "apart": set(),
    "unsettled": set(),
    "bounded": set(),
    "gaussian": set(),
    "chernoff": {"order"},
    "integral": {"path"},
}
PATH = ("center", "scale", "angle", "reach", "level")
DIRECTIONS = {"answer": ("forward", "backward"), "table": ("table",)}
SIDES = {"forward": (False,), "backward": (True,), "table": (False, True)}
#: Bits of the integral; evaluations of the integrand per edge; its relative width that is asked for.
BITS, EVALUATIONS, GOAL = 144, 60_000, 2.0**-58
#: |t| times the largest diagonal entry, beyond which the integrand is evaluated in 1/t.
FAR = 2.0
#: Of the release: grid steps per least deviation and values per step, in bits; a normal's units; its lattice; the
#: factor's places and what their residual is worth; the jitter, in k ε.
FINENESS, VALUES, UNIT, LATTICE, WIDTH, FACTOR_TV, JITTER = 20, 51, 120, 56, 192, 2.0**-142, 4
EPS = 2.0**-52
#: What a file may unpack to: so many bytes, or so many times its size. Bytes of a proof and of a file of parameters.
ROOM, RATIO = 1 << 28, 100
MOST_PROOF, MOST_FILE = 1 << 28, 1 << 30
#: Characters of a number; answers about each label; answers that one integral is taken over.
DIGITS, MOST_TIMES, MOST_SIDES = 32, 1_000_000, 64
#: Of a covariance that is singular: how far, relative to its diagonal, rounding may have left it from being one.
ROUNDING = 2.0**-30


class Refused(Exception):
    """The proof does not hold, or cannot be followed."""


class Unreadable(Refused):
    """A file is damaged, or of another kind."""


class Imprecise(Refused):
    """A failure that may succeed with more bits."""


# --------------------------------------------------------------------------------------------------- reading


def once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, refused where a name occurs twice in it."""
    if not len({name for name, _ in members}) == len(members):
        raise Unreadable("a file names a field twice")
    return dict(members)


def whole(text: str) -> int:
    if not len(text) <= DIGITS:
        raise Unreadable("a file holds a number that is too long")
    return int(text)


def decimal(text: str) -> float:
    if not (len(text) <= DIGITS and math.isfinite(float(text))):
        raise Unreadable("a file holds a number that is not a double")
    return float(text)


def no_number(text: str) -> Any:
    raise Unreadable(f"a file holds {text}, which is not a number")


def parse(content: bytes) -> Any:
    """JSON in which no name occurs twice and every number is finite."""
    try:
        return json.loads(
            content.decode("utf-8"),
            object_pairs_hook=once,
            parse_int=whole,
            parse_float=decimal,
            parse_constant=no_number,
        )
    except RecursionError:
        raise Unreadable("the file is nested too deeply to be read") from None
    except ValueError:
        raise Unreadable("the file is not JSON in UTF-8") from None


def array(content: bytes) -> Any:
    """An array of NumPy's format, of doubles or whole numbers, as long as its own header says."""
    buffer = io.BytesIO(content)
    version = np.lib.format.read_magic(buffer)
    if version not in ((1, 0), (2, 0)):
        raise ValueError("an array of another version")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(buffer)
    if dtype.str not in ("<f8", "<i8", "<i4") or math.prod(shape) * dtype.itemsize != len(content) - buffer.tell():
        raise ValueError("an array of another type, or not as long as it says")
    return np.load(io.BytesIO(content), allow_pickle=False)


def read(content: bytes) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Header, arrays and digest of a file whose digest is that of its content."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if not sum(entry.file_size for entry in entries) <= max(ROOM, RATIO * len(content)):
                raise ValueError("unpacks to more than it may")
            if not len({entry.filename for entry in entries}) == len(entries):
                raise ValueError("holds a name twice")
            header = parse(archive.read("header.json"))
            stored = [entry.filename for entry in entries if entry.filename != "header.json"]
            if not all(name.endswith(".npy") for name in stored):
                raise ValueError("holds what is not an array")
            arrays = {name[:-4]: array(archive.read(name)) for name in stored}
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, RuntimeError) as error:
        raise Unreadable("the file of parameters is damaged, or not one") from error
    if not (isinstance(header, dict) and isinstance(header.get("format"), str) and header["format"] in FORMATS):
        raise Unreadable("the file of parameters is of a format that this checker does not know")
    if not (type(header.get("version")) is int and header["version"] == VERSION):
        raise Unreadable("the file of parameters is of a version that this checker does not know")
    stated = header.pop("digest", None)
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        total.update(f"{name}:{values.dtype.str}:{values.shape}:".encode())
        total.update(values.tobytes())
    if not stated == total.hexdigest():
        raise Unreadable("the file of parameters does not match its digest")
    return header, arrays, total.hexdigest()


def names(value: Any) -> list[str]:
    """Labels: different strings."""
    if not (isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)):
        raise Refused("the labels of the file are not different strings")
    return value


def doubles(arrays: dict[str, Any], name: str, *shapes: tuple[int, ...], least: float = -math.inf) -> None:
    """Refuse unless an array holds finite doubles, none below ``least``, in one of these shapes."""
    values = arrays[name]
    if not (values.dtype == np.float64 and values.shape in shapes and np.isfinite(values).all()):
        raise Refused(f"the file's {name} are not finite doubles in the shape that they must have")
    if not (values >= least).all():
        raise Refused(f"the file's {name} hold a number below {least!r}")


def verify(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Refuse unless labels, arrays and counts are those of laws, or of a mechanism."""
    required, optional = FORMATS[header["format"]]
    if not (required <= set(arrays) <= required | optional):
        raise Refused("the file lacks parameters, or holds some that this checker does not know")
    if not (("variances" in arrays) != ("covs" in arrays) and ("cov_error" in arrays) == ("mean_error" in arrays)):
        raise Refused("the file holds covariances, or what is not known of them, twice or not at all")
    means = arrays["means"]
    if not (means.ndim == 2 and means.shape[0] >= 2 and means.shape[1] >= 1):
        raise Refused("the file holds means of fewer than two labels")
    n, k = means.shape
    if not len(names(header.get("labels"))) == n:
        raise Refused("the file does not hold one label for each mean")
    doubles(arrays, "means", (n, k))
    if "variances" in arrays:
        doubles(arrays, "variances", (n, k), (1, k), least=0.0)
    else:
        doubles(arrays, "covs", (n, k, k), (1, k, k))
        covs = arrays["covs"]
        if not ((covs == np.swapaxes(covs, 1, 2)).all() and (np.diagonal(covs, axis1=1, axis2=2) >= 0).all()):
            raise Refused("the file holds covariances that are not symmetric, or a negative variance")
    if "cov_error" in arrays:
        doubles(arrays, "cov_error", (n, k, k), (1, k, k), least=0.0)
        doubles(arrays, "mean_error", (n, k), least=0.0)
    edges = arrays["edges"]
    if not (edges.dtype.kind == "i" and edges.ndim == 2 and edges.shape[1] == 2):
        raise Refused("the file's graph is not a list of pairs")
    if not (((edges >= 0) & (edges < n)).all() and (edges[:, 0] != edges[:, 1]).all()):
        raise Refused("the file's graph joins labels that there are not, or a label to itself")
    if not len({frozenset(pair) for pair in edges.tolist()}) == len(edges):
        raise Refused("the file's graph lists a pair twice")
    if header["format"] == "shoal laws":
        if "graph_labels" in header:
            raise Refused("the file's laws order the labels of their graph otherwise")
        return
    if not set(names(header.get("graph_labels"))) == set(header["labels"]):
        raise Refused("the file's graph has other labels than its laws")
    doubles(arrays, "epsilon", (len(edges),), least=0.0)
    doubles(arrays, "budget", (n,))
    doubles(arrays, "shift", (n, k), (1, k))
    doubles(arrays, "noise_cov", (n, k, k), (1, k, k))
    if not (np.diagonal(arrays["noise_cov"], axis1=1, axis2=2) >= 0).all():
        raise Refused("the file holds a negative variance of noise")
    if "gain" in arrays:
        doubles(arrays, "gain", (n, k, k))
    if "mean_grid" in arrays:
        grid = arrays["mean_grid"]
        if not (grid.dtype == np.int64 and grid.shape == (n, k) and ((grid >= -1074) & (grid <= 1074)).all()):
            raise Refused("the file's grid of means is not one")
    method, notion = header.get("method"), header.get("notion")
    if not (isinstance(method, str) and notion in ("dp", "pdp", "pdp-two-sided", "chernoff")):
        raise Refused("the file does not say how its mechanism was designed")
    if header.get("scope", "answer") not in ("answer", "table"):
        raise Refused("the file does not say what its mechanism was designed for")
    times = header.get("times", 1)
    if not (type(times) is int and 1 <= times <= MOST_TIMES):
        raise Refused(f"the file is not for 1 to {MOST_TIMES:,} answers about each label")
    if header.get("outside", 0.0) != 0.0:
        raise Refused("the file's answers were clipped, which adds to δ")


# --------------------------------------------------------------------------------------------------- laws


class Law(NamedTuple):
    """Mean and covariance in exact rationals, and radii of what is not known of them (None: nothing)."""

    mean: tuple[Any, ...]
    cov: Any
    cov_radius: Any
    mean_radius: Any


def rational(value: float) -> Any:
    return fmpq(*float(value).as_integer_ratio())


def rationals(values: Any) -> Any:
    return fmpq_mat(values.shape[0], values.shape[1], [rational(v) for v in values.ravel().tolist()])


class Laws:
    """The law of every label, from the arrays of a file."""

    def __init__(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.arrays = arrays
        self.released = header["format"] == "shoal mechanism"
        self.times: int = header.get("times", 1) if self.released else 1
        self.n, self.k = arrays["means"].shape
        self.kept: dict[int, Law] = {}
        self.class_covs = [rationals(np.diag(one) if one.ndim == 1 else one) for one in self._covs()]
        if not all(is_covariance(cov) for cov in self.class_covs):
            raise Refused("the file holds a covariance that no law has")
        self.jitters: dict[bytes, tuple[Any, Any]] = {}
        noise = arrays.get("noise_cov")
        error = arrays.get("cov_error")
        self.one_cov = (
            len(self._covs()) == 1
            and (error is None or len(error) == 1 or not error.any())
            and (noise is None or ("gain" not in arrays and bool((noise == noise[0]).all())))
        )

    def _covs(self) -> Any:
        return self.arrays["variances"] if "variances" in self.arrays else self.arrays["covs"]

    def class_cov(self, i: int) -> Any:
        return self.class_covs[i if len(self.class_covs) > 1 else 0]

    def __getitem__(self, i: int) -> Law:
        if i not in self.kept:
            self.kept[i] = self._law(i)
        return self.kept[i]

    def _law(self, i: int) -> Law:
        a, k = self.arrays, self.k
        cov: Any = self.class_cov(i)
        cov_radius: Any = None
        mean_radius: Any = None
        if "cov_error" in a:
            of_cov, of_mean = a["cov_error"][i if len(a["cov_error"]) > 1 else 0], a["mean_error"][i][:, None]
            cov_radius = rationals(of_cov) if of_cov.any() else None
            mean_radius = rationals(of_mean) if of_mean.any() else None
        if not self.released:
            return Law(tuple(rational(v) for v in a["means"][i].tolist()), cov, cov_radius, mean_radius)
        if "gain" in a:
            one = fmpq_mat(k, k, [fmpq(int(r == c)) for r in range(k) for c in range(k)])
            kept = one + rationals(a["gain"][i])
            cov = kept * cov * kept.transpose()
            size = fmpq_mat(k, k, [abs(v) for v in kept.entries()])
            cov_radius = None if cov_radius is None else size * cov_radius * size.transpose()
            mean_radius = None if mean_radius is None else size * mean_radius
        drawn, radius = self._noise(a["noise_cov"][i if len(a["noise_cov"]) > 1 else 0])
        if radius is not None:
            cov_radius = radius if cov_radius is None else cov_radius + radius
        return Law(self._mean(i), cov + drawn, cov_radius, mean_radius)

    def _mean(self, i: int) -> tuple[Any, ...]:
        a = self.arrays
        shift = a["shift"][i if len(a["shift"]) > 1 else 0].tolist()
        grid = a["mean_grid"][i].tolist() if "mean_grid" in a else [-1074] * self.k
        found = []
        for mean, moved, exponent in zip(a["means"][i].tolist(), shift, grid, strict=True):
            if exponent <= -1074:
                found.append(rational(mean) + rational(moved))
            else:
                found.append(fmpq(round(Fraction(mean + moved) / Fraction(2) ** exponent)) * fmpq(2) ** exponent)
        return tuple(found)

    def _noise(self, noise: Any) -> tuple[Any, Any]:
        """The covariance that is drawn: the mean with the transpose, and a little more where it is nearly singular."""
        key = noise.tobytes()
        if key not in self.jitters:
            self.jitters[key] = self._jitter(noise)
        return self.jitters[key]

    def _jitter(self, noise: Any) -> tuple[Any, Any]:
        k, stored = self.k, rationals(noise)
        cov = (stored + stored.transpose()) * fmpq(1, 2)
        if not is_covariance(cov):
            raise Refused("the file's noise is not one that can be drawn")
        if any(cov[r, c] != 0 for r in range(k) for c in range(k) if r != c):
            # Correlations minus a multiple of the identity: positive definite, or not, decides.
            with ctx.workprec(400):
                root = [arb(cov[r, r]).sqrt() if cov[r, r] > 0 else arb(1) for r in range(k)]
                rows = [[arb(cov[r, c]) / root[r] / root[c] if r != c else arb(1) for c in range(k)] for r in range(k)]
            surely_not = self._exceeds(rows, 34 * k * k)
            if not surely_not:
                surely = self._exceeds(rows, 30 * k * k) is False
                share = fmpq(JITTER * k, 2**52) * (1 if surely else fmpq(1, 2))
                spread = fmpq(1, 2 ** (WIDTH - 3))
                biggest = [fmpq(math.ceil(math.sqrt(float(cov[r, r])) * 2.0**60) + 1, 2**60) for r in range(k)]
                radius = [spread * biggest[r] * biggest[c] for r in range(k) for c in range(k)]
                more = [share * cov[r, r] if r == c else fmpq(0) for r in range(k) for c in range(k)]
                extra = fmpq_mat(k, k, more)
                return cov + extra, fmpq_mat(k, k, radius) + (extra * fmpq(0 if surely else 1))
        return cov, None

    @staticmethod
    def _exceeds(rows: list[list[Any]], units: int) -> bool | None:
        """Whether the least eigenvalue is above this many ε; None where 400 bits cannot tell."""
        with ctx.workprec(400):
            less = [[v - units * EPS if r == c else v for c, v in enumerate(row)] for r, row in enumerate(rows)]
            for j in range(len(less)):
                pivot = less[j][j]
                if not pivot > 0:
                    return False if pivot < 0 else None
                for i in range(j + 1, len(less)):
                    factor = less[i][j] / pivot
                    for m in range(j + 1, i + 1):
                        less[i][m] -= factor * less[m][j]
                        less[m][i] = less[i][m]
            return True


def entries(law: Law, chosen: list[int]) -> Law:
    cov = fmpq_mat(len(chosen), len(chosen), [law.cov[i, j] for i in chosen for j in chosen])
    return Law(tuple(law.mean[i] for i in chosen), cov, None, None)


def supports(a: Law, b: Law) -> tuple[Law, Law] | None:
    """Both laws in entries in which they have full rank, exactly; None where their supports differ."""
    k, rank = len(a.mean), a.cov.rank()
    if rank == k and b.cov.rank() == k:
        return a, b
    if any(r is not None for r in (a.cov_radius, b.cov_radius, a.mean_radius, b.mean_radius)):
        raise Refused("a law is singular and not known exactly")
    rows = [
        [a.cov[i, j] for j in range(k)] + [b.cov[i, j] for j in range(k)] + [b.mean[i] - a.mean[i]] for i in range(k)
    ]
    if b.cov.rank() != rank or fmpq_mat(k, 2 * k + 1, [v for row in rows for v in row]).rank() != rank:
        return None
    form = a.cov.rref()[0]
    chosen = [next(j for j in range(k) if form[i, j] != 0) for i in range(rank)]
    return entries(a, chosen), entries(b, chosen)


def same(a: Law, b: Law) -> bool:
    exact = all(r is None for r in (a.cov_radius, b.cov_radius, a.mean_radius, b.mean_radius))
    return exact and a.mean == b.mean and bool(a.cov == b.cov) and is_covariance(a.cov)


def is_covariance(cov: Any) -> bool:
    """Whether a matrix is surely positive definite once ``ROUNDING`` of its diagonal is added to it."""
    kept = [i for i in range(cov.nrows()) if cov[i, i] != 0]
    if not all(cov[i, j] == 0 for i in range(cov.nrows()) if i not in kept for j in range(cov.nrows())):
        return False
    with ctx.workprec(256):
        lifted = [[arb(cov[i, j]) * (1 + (arb(ROUNDING) if i == j else 0)) for j in kept] for i in kept]
        try:
            cholesky(lifted)
        except Imprecise:
            return False
    return True


def ball(value: Any, radius: Any) -> Any:
    return arb(value) if radius is None else arb(value) + arb(0, 1) * arb(radius).abs_upper()


def balls(center: Any, radius: Any) -> list[list[Any]]:
    return [
        [ball(center[i, j], None if radius is None else radius[i, j]) for j in range(center.ncols())]
        for i in range(center.nrows())
    ]


def together(one: Any, two: Any) -> Any:
    return two if one is None else one if two is None else one + two


def cholesky(rows: list[list[Any]]) -> tuple[list[list[Any]], Any]:
    """L with L Lᵀ = M, and ln det M, in balls; refused unless M is surely positive definite."""
    k = len(rows)
    factor = [[arb(0)] * k for _ in range(k)]
    log_det = arb(0)
    for i in range(k):
        for j in range(i + 1):
            rest = rows[i][j] - sum((x * y for x, y in zip(factor[i][:j], factor[j][:j], strict=True)), arb(0))
            if i == j:
                if not rest > 0:
                    raise Imprecise("a covariance is not proved positive definite")
                factor[i][i] = rest.sqrt()
                log_det += rest.log()
            else:
                factor[i][j] = rest / factor[j][j]
    return factor, log_det


def solve(factor: list[list[Any]], column: list[Any]) -> list[Any]:
    """L⁻¹ applied to a column."""
    found: list[Any] = []
    for i, row in enumerate(factor):
        found.append((column[i] - sum((x * y for x, y in zip(row[:i], found, strict=True)), arb(0))) / row[i])
    return found


class Parts(NamedTuple):
    """Σ, Σ', Σ − Σ' and μ' − μ of a pair in balls."""

    first: list[list[Any]]
    base: list[list[Any]]
    diff: list[list[Any]]
    gap: list[Any]


def parts(a: Law, b: Law, one_cov: bool) -> Parts:
    gap_radius = together(a.mean_radius, b.mean_radius)
    gap = [
        ball(y - x, None if gap_radius is None else gap_radius[i, 0])
        for i, (x, y) in enumerate(zip(a.mean, b.mean, strict=True))
    ]
    doubt = None if one_cov else together(a.cov_radius, b.cov_radius)
    pair = Parts(balls(a.cov, a.cov_radius), balls(b.cov, b.cov_radius), balls(a.cov - b.cov, doubt), gap)
    return pair if is_known(a, b) else level(pair)


def is_known(*laws: Law) -> bool:
    return all(law.cov_radius is None and law.mean_radius is None for law in laws)


def level(pair: Parts) -> Parts:
    """W Σ Wᵀ, W Σ' Wᵀ, W (Σ − Σ') Wᵀ and W (μ' − μ) with one matrix W of exact numbers, near the inverse of a factor of
    Σ'. That changes neither losses nor determinants' ratio, and elimination on what is nearly the identity hardly
    widens balls. A singular W would show: Σ' is proved positive definite after it."""
    k = len(pair.gap)
    factor, _ = cholesky([[v.mid() for v in row] for row in pair.base])
    columns = [solve(factor, [arb(int(i == j)) for i in range(k)]) for j in range(k)]
    w = [[columns[j][i].mid() for j in range(i + 1)] for i in range(k)]

    def times(row: list[Any], column: list[Any]) -> Any:
        return sum((x * y for x, y in zip(row, column[: len(row)], strict=True)), arb(0))

    def transform(matrix: list[list[Any]]) -> list[list[Any]]:
        half = [[times(row, [line[j] for line in matrix]) for j in range(k)] for row in w]
        return [[times(w[j], half[i]) for j in range(k)] for i in range(k)]

    return Parts(transform(pair.first), transform(pair.base), transform(pair.diff), [times(row, pair.gap) for row in w])


# --------------------------------------------------------------------------------------------------- the integral


class Chain(NamedTuple):
    """Tridiagonal form: diagonal, squares next to it, ‖y‖², ln det Σ/det Σ', and what was left out of H and y."""

    diagonal: list[Any]
    squares: list[Any]
    length: Any
    log_ratio: Any
    left: float
    off: float


def chain(pair: Parts, known: bool) -> Chain:
    """The form of a pair. Where laws are not known exactly, of the centers of H and y: a turn leaves the norms of what
    is not known of them as they are."""
    factor, log_base = cholesky(pair.base)
    log_first = cholesky(pair.first)[1]
    k = len(pair.gap)
    half = [solve(factor, [row[j] for row in pair.diff]) for j in range(k)]  # columns of L⁻¹ (Σ − Σ')
    turned = [solve(factor, [half[j][i] for j in range(k)]) for i in range(k)]
    y = solve(factor, pair.gap)
    n, left, off = k + 1, arb(0), arb(0)
    if not known:
        off = sum((v.rad() * v.rad() for v in y), arb(0)).sqrt()
        left = sum((turned[max(i, j)][min(i, j)].rad() ** 2 for i in range(k) for j in range(k)), arb(0)).sqrt()
        y = [v.mid() for v in y]
        turned = [[turned[max(i, j)][min(i, j)].mid() for j in range(k)] for i in range(k)]
    m = [[arb(0), *y]] + [[y[i], *turned[i]] for i in range(k)]
    for j in range(n - 2):
        x = [m[i][j] for i in range(j + 1, n)]
        if all(v.is_zero() for v in x[1:]):
            continue
        square = sum((v * v for v in x), arb(0))
        if not square > arb(2) ** -ctx.prec:
            size = square.abs_upper().sqrt()
            left, off = (left, off + size) if j == 0 else (left + 2 * size, off)
            for i in range(j + 2, n):
                m[i][j] = m[j][i] = arb(0)
            continue
        v, norm = list(x), square.sqrt()
        v[0] = v[0] + norm if v[0].mid() >= 0 else v[0] - norm
        scale = 2 / sum((one * one for one in v), arb(0))
        p = [scale * sum((m[i][c] * v[c - j - 1] for c in range(j + 1, n)), arb(0)) for i in range(j + 1, n)]
        mean = scale / 2 * sum((one * two for one, two in zip(v, p, strict=True)), arb(0))
        q = [one - mean * two for one, two in zip(p, v, strict=True)]
        for r in range(len(v)):
            row = m[j + 1 + r]
            for c in range(r + 1):
                row[j + 1 + c] -= v[r] * q[c] + q[r] * v[c]
                m[j + 1 + c][j + 1 + r] = row[j + 1 + c]
        edge = -norm if x[0].mid() >= 0 else norm
        m[j + 1][j] = m[j][j + 1] = edge
        for i in range(j + 2, n):
            m[i][j] = m[j][i] = arb(0)
    squares = [m[i + 1][i] * m[i + 1][i] for i in range(n - 1)]
    diagonal = [m[i][i] for i in range(1, n)]
    return Chain(diagonal, squares[1:], squares[0], log_first - log_base, up(left), up(off))


class Integrand:
    """e^{K(t) − εt − level}, in the directions given, from the chain alone."""

    def __init__(self, own: Chain, sides: tuple[bool, ...], epsilon: float, center: float, level: float) -> None:
        self.own, self.sides, self.center = own, sides, center
        half = own.log_ratio / 2
        self.slope = sum((half if side else -half for side in sides), arb(0)) - arb(epsilon)
        self.start = sum((half for side in sides if side), arb(0)) - arb(level)
        starts = [-1 - arb(center) if side else arb(center) for side in sides]
        self.rooms = [self._room(s) for s in starts] if own.left or own.off else []
        spread = [abs(v).upper() for v in own.diagonal] + [v.abs_upper().sqrt() * 2 for v in own.squares]
        self.reach = up(sum(spread, arb(1)))
        self.size = max(float(abs(v).upper()) for v in own.diagonal)

    def _room(self, s: Any) -> float:
        """A lower bound on the least eigenvalue of I − sT at the start, which must be positive."""
        most = 1.0
        while most > 1e-12:
            if all(pivot > 0 for pivot in self._pivots(s, arb(most))):
                return most
            most /= 1.25
        raise Refused("a path starts outside of the strip where the loss has exponential moments")

    def _pivots(self, s: Any, less: Any) -> list[Any]:
        found: list[Any] = []
        squares = self.own.squares
        for j in range(len(self.own.diagonal) - 1, -1, -1):
            pivot = 1 - less - s * self.own.diagonal[j]
            if found:
                pivot -= s * s * squares[j] / found[-1]
            found.append(pivot)
        return found

    def at(self, t: Any, analytic: bool) -> tuple[Any, Any, float, list[tuple[Any, float]]] | None:
        """Exponent, ∏ d^(−½), a bound on their error, and yᵀ(I − sT)⁻¹y with its own error for every side."""
        own, root, form, line = self.own, acb(1), acb(0), acb(0)
        error, doubts, forms = 0.0, 0.0, []
        both = t * (t + 1)
        for number, side in enumerate(self.sides):
            s = -1 - t if side else t
            # Far out pivots of (1/s)I − T are used, and t(1+t)/2 times the form as (1+t)/2 times what has a
            # limit, so that what cancels against the straight line does so before t is multiplied in.
            far = float(abs(s).lower()) * self.size > FAR
            start = 1 / s if far else acb(1)
            square = acb(1) if far else s * s
            last = None
            for j in range(len(own.diagonal) - 1, -1, -1):
                pivot = start - (own.diagonal[j] if far else s * own.diagonal[j])
                if last is not None:
                    pivot -= square * own.squares[j] / last
                root *= pivot.rsqrt(analytic=analytic)
                last = pivot
            part = own.length / last
            if far:
                root *= s.rsqrt(analytic=analytic) ** len(own.diagonal)
                line += part * (1 / (1 + t) - 1) if side else part
                part /= s
            else:
                form += part
            doubt = 0.0
            if own.left or own.off:
                gone = t - self.center
                away = up(abs(gone))
                tilt = float(abs(gone.imag).lower()) / away * (1 - 1e-9) if away > 0 else 0.0
                # |1 − sτ| of a real τ is at least |sin arg s|, and near the start what it is there, less the way gone.
                least = float(abs(s.imag).lower()) / up(abs(s)) * (1 - 1e-9)
                least = max(least, self.rooms[number] * tilt, self.rooms[number] - away * self.reach * (1 + 1e-9))
                moved = up(abs(s)) * own.left * (1 + 1e-9)
                if not moved < 0.5 * least:
                    return None
                rho = moved / least
                # The sum of k eigenvalues' moduli is at most √k times the Frobenius norm.
                error += 0.5 * math.sqrt(len(own.diagonal)) * rho / (1 - rho)
                size = up(own.length.abs_upper().sqrt())
                doubt = (size * size / least * moved + (2 * size + own.off) * own.off) / least / (1 - rho) * (1 + 1e-9)
            doubts += doubt
            forms.append((part, doubt))
        error = (error + 0.5 * up(abs(both)) * doubts) * (1 + 1e-9)
        if not error < 0.5:
            return None
        exponent = self.start + t * (self.slope + line / 2) + line / 2 + both * form / 2
        return exponent, root, error, forms

    def __call__(self, t: Any, analytic: bool) -> Any:
        found = self.at(t, analytic)
        if found is None:
            return acb(arb.nan(), arb.nan())
        exponent, root, error, _ = found
        off = arb(0, 2 * error)
        return exponent.exp() * root * acb(1 + off, off) / (t * (t + 1))


def integral(own: Chain, sides: tuple[bool, ...], epsilon: float, path: dict[str, Any], width: float) -> Any:
    """δ(ε) as a ball of about this relative width, along the path that the proof names; any path that starts in the
    strip would do."""
    center, scale, angle, reach, level = (double(path[name]) for name in PATH)
    if not (center > 0 and scale > 0 and 0 < angle < 0.75 and reach > 0 and path["bend"] in (1, -1)):
        raise Refused("a path is not one")
    if not len(sides) <= MOST_SIDES:
        raise Refused(f"an integral is over more than {MOST_SIDES} answers")
    integrand = Integrand(own, sides, epsilon, center, level)
    for side in sides:
        if not all(pivot > 0 for pivot in integrand._pivots(arb(-1 - arb(center)) if side else arb(center), arb(0))):
            raise Refused("a path starts outside of the strip where the loss has exponential moments")
    sin, cos = arb(angle).sin() * path["bend"] * arb(scale), arb(angle).cos() * arb(scale)

    def point(v: Any) -> Any:
        return center + acb(0, 1) * cos * v.sinh() + sin * (v.cosh() - 1)

    def along(v: Any, analytic: bool) -> Any:
        return integrand(point(v), analytic) * (acb(0, 1) * cos * v.cosh() + sin * v.sinh())

    with ctx.workprec(BITS):
        goal = arb(max(GOAL, width))
        inside = acb.integral(along, 0, acb(reach), rel_tol=goal, abs_tol=goal * scale, eval_limit=EVALUATIONS)
        end = point(acb(reach))
        height = end.imag.lower()
        found = integrand.at(end, False)
        if found is None or not height > 0:
            raise Refused("the end of a path cannot be evaluated")
        exponent, root, error, forms = found
        most = exponent.real + abs(root).log() + error
        for form, doubt in forms:
            most += (end.real**2 + abs(end.real)) * ((end * form).imag + abs(end) * doubt) / height / 2
        rest = arb(0, 1) * most.exp().upper() / height
        return (inside.imag + rest) * arb(level).exp() / arb.pi()


def chernoff(pair: Parts, sides: tuple[bool, ...], epsilon: float, order: float) -> Any:
    """e^{K(t) − εt} t^t/(1+t)^(1+t) at t = order > 0, where the mixed covariances are positive definite."""
    t, k = arb(order), len(pair.gap)
    if not (t > 0 and t.is_finite()):
        raise Refused("an order is not positive")
    log_first, log_base = cholesky(pair.first)[1], cholesky(pair.base)[1]
    total = -arb(epsilon) * t
    for side in sorted(set(sides)):
        here, there = (log_base, log_first) if side else (log_first, log_base)
        start, sign = (pair.first, 1) if side else (pair.base, -1)
        mixed = [[start[i][j] + sign * t * pair.diff[i][j] for j in range(k)] for i in range(k)]
        factor, log_mixed = cholesky(mixed)
        form = sum((v * v for v in solve(factor, pair.gap)), arb(0))
        total += sides.count(side) * (-t * (here - there) - log_mixed + there + t * (1 + t) * form) / 2
    return (total + t * t.log() - (1 + t) * (1 + t).log()).exp()


def one_covariance(pair: Parts, times: int, epsilon: float) -> Any:
    """δ(ε) of laws that differ in their means alone, from Φ and the distance μ between them; a table has two of it."""
    if not all(v.is_zero() for row in pair.diff for v in row):
        raise Refused("two covariances are stated to be equal and are not")
    squares = [v * v for v in solve(cholesky(pair.base)[0], pair.gap)]
    square, ends = sum(squares, arb(0)) * times, []
    if not square.is_finite():
        raise Imprecise("the distance between two means is not enclosed")
    for end in (square.lower(), square.upper()):
        mu, at = end.max(arb(0)).sqrt(), arb(epsilon)
        if not mu > 0:
            ends.append(arb(0))
            continue
        tails = [((at / mu + sign * mu / 2) / arb(2).sqrt()).erfc() / 2 for sign in (-1, 1)]
        ends.append(tails[0] - at.exp() * tails[1])
    return ends[0].union(ends[1])


def bounded(pair: Parts, backward: bool, epsilon: float) -> bool:
    """Whether the loss never exceeds ε: ±(Σ' − Σ) is positive definite and the largest loss is at most ε."""
    sign = 1 if backward else -1
    factor, _ = cholesky([[sign * v for v in row] for row in pair.diff])
    form = sum((v * v for v in solve(factor, pair.gap)), arb(0))  # dᵀ (±(Σ − Σ'))⁻¹ d
    ratio = cholesky(pair.first)[1] - cholesky(pair.base)[1]
    most = (ratio + form) / 2 if backward else (form - ratio) / 2
    return bool(most <= arb(epsilon))


# --------------------------------------------------------------------------------------------------- finite precision


def up(value: Any) -> float:
    """A double at or above the upper end of a ball; infinite where there is none, or where it is not a number."""
    end = arb(value).upper()
    if not end.is_finite():
        return math.inf
    found = float(end)
    while math.isfinite(found) and arb(found) < end:
        found = math.nextafter(found, math.inf)
    return found


def power_below(value: Any) -> int:
    """e with 2^e ≤ value, at most one less than the largest such."""
    return math.frexp(float(arb(value).lower()) * (1 - 2.0**-40))[1] - 1


def precision(laws: Laws, pairs: list[tuple[int, int]], epsilon: list[float], scope: str) -> Any:
    """Bound on what rounding and finitely many random bits add to δ of released answers."""
    a, k, n = laws.arrays, laws.k, laws.n
    with ctx.workprec(128):
        variances = [[arb(laws[i].cov[j, j]) for j in range(k)] for i in range(n)]
        steps = []
        for j in range(k):
            widest = max((up(abs(arb(laws[i].mean[j])) + 64 * variances[i][j].sqrt()) for i in range(n)), default=0.0)
            least = [variances[i][j].sqrt() for i in range(n) if variances[i][j] > 0]
            fine = min((power_below(one) for one in least), default=-1074 + FINENESS) - FINENESS
            coarse = math.frexp(widest * (1 - 2.0**-40))[1] - VALUES if widest > 0 else -FINENESS
            steps.append(arb(2) ** min(max(fine, coarse, -1074), 970))
        h = arb(2) ** -LATTICE
        normal = (arb(-1) / 2).exp() / (2 * arb.pi()).sqrt() * h * h / 4 + arb(2) ** -900
        tv = []
        for i in range(n):
            noise = a["noise_cov"][i if len(a["noise_cov"]) > 1 else 0]
            std = [arb(float(noise[j, j])).sqrt() for j in range(k)]
            total = arb(0)
            if any(s > 0 for s in std):
                crossed = sum((s / step + arb(0.4) for s, step in zip(std, steps, strict=True) if s > 0), arb(0))
                total = 2 * arb(2) ** -UNIT * arb(k).sqrt() * crossed + k * normal + arb(FACTOR_TV)
            tv.append(total * laws.times)
        for i in {i for pair in pairs for i in pair}:
            law = laws[i]
            varies = any(v != 0 for v in laws.class_cov(i).entries())
            moved = "gain" in a or any(m != rational(v) for m, v in zip(law.mean, a["means"][i].tolist(), strict=True))
            if varies and moved and law.cov.rank() < k:
                tv[i] = arb(1)
        worst = 0.0
        for (i, j), at in zip(pairs, epsilon, strict=True):
            one, two = (tv[i] + tv[j], tv[i] + tv[j]) if scope == "table" else (tv[i], tv[j])
            worst = max(worst, up(one + arb(at).exp() * two), up(two + arb(at).exp() * one))
        return min(worst, 1.0)


# --------------------------------------------------------------------------------------------------- all of it


def double(text: Any) -> float:
    """A finite double that is written as ``float.hex`` writes it."""
    try:
        value = float.fromhex(text) if isinstance(text, str) and len(text) <= DIGITS else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if not (math.isfinite(value) and value.hex() == text):
        raise Refused("a number of the proof is not a finite double in hexadecimal digits")
    return value


def share(text: Any) -> float:
    """A double in [0, 1]."""
    value = double(text)
    if not 0.0 <= value <= 1.0:
        raise Refused("an end of the proof is not in [0, 1]")
    return value


def place(value: Any, count: int) -> int:
    """A position in a list of this length, counted from its start."""
    if not (type(value) is int and 0 <= value < count):
        raise Refused("the proof names a position that there is not")
    return value


def rows(value: Any, length: int | None = None) -> list[Any]:
    if not (isinstance(value, list) and (length is None or len(value) == length)):
        raise Refused("a field of the proof is not a list, or not one of the length that it must have")
    return value


def fields(value: Any, expected: set[str]) -> dict[str, Any]:
    if not (isinstance(value, dict) and set(value) == expected):
        raise Refused("the proof lacks a field, or holds one that this checker does not know")
    return value


class Entry(NamedTuple):
    """One stated enclosure: lower ≤ δ ≤ upper of a pair in one direction, and by what."""

    row: int
    direction: str
    by: str
    lower: float
    upper: float
    order: float
    path: dict[str, Any]


def direction_of(value: Any, scope: str) -> str:
    if not (isinstance(value, str) and value in DIRECTIONS[scope]):
        raise Refused("a direction does not belong to the scope")
    return value


def entry_of(value: Any, count: int, scope: str) -> Entry:
    """An enclosure as the proof states it, refused unless it is one."""
    by = value.get("by") if isinstance(value, dict) else None
    if not (isinstance(by, str) and by in MORE):
        raise Refused("an edge is proved in a way that this checker does not know")
    stated = fields(value, ENCLOSURE | MORE[by])
    row, direction = place(stated["edge"], count), direction_of(stated["direction"], scope)
    lower, upper = share(stated["lower"]), share(stated["upper"])
    if not lower <= upper:
        raise Refused("an enclosure is not one: its lower end is above its upper end")
    path = fields(stated["path"], {*PATH, "bend"}) if by == "integral" else {}
    if path and type(path["bend"]) is not int:
        raise Refused("a path is not one")
    order = double(stated["order"]) if by == "chernoff" else 1.0
    if not order > 0:
        raise Refused("an order is not positive")
    return Entry(row, direction, by, lower, upper, order, path)


def exclusion_of(value: Any, count: int, scope: str) -> tuple[int, str, float]:
    """A pair, a direction and the order of its bound, which is written in decimal digits."""
    row, direction, text = rows(value, 3)
    try:
        order = float(text) if isinstance(text, str) and len(text) <= DIGITS else math.nan
    except ValueError:
        order = math.nan
    if not (math.isfinite(order) and order > 0 and repr(order) == text):
        raise Refused("an order is not a positive number")
    return place(row, count), direction_of(direction, scope), order


def confirm(laws: Laws, stated: Entry, pair: tuple[int, int], epsilon: float) -> None:
    """Hold one stated enclosure against an own one; refuse unless that lies inside."""
    lower, upper = stated.lower, stated.upper
    if stated.by == "unsettled":
        if not (lower, upper) == (0.0, 1.0):
            raise Refused("what is not settled is enclosed by [0, 1] only")
        return
    common = supports(laws[pair[0]], laws[pair[1]])
    if stated.by == "apart":
        if not (common is None and all(is_covariance(laws[i].cov) for i in pair)):
            raise Refused("two supports are stated to differ and do not")
        if not (lower, upper) == (1.0, 1.0):
            raise Refused("two supports differ, and δ is not stated to be 1")
        return
    if common is None:
        raise Refused("two supports differ, and that is not stated")
    sides = SIDES[stated.direction] * laws.times
    bits = 256 + 16 * laws.k
    known = is_known(*common)
    while True:
        try:
            with ctx.workprec(bits):
                own = parts(*common, laws.one_cov)
                if stated.by == "bounded":
                    if not ((lower, upper) == (0.0, 0.0) and len(sides) == 1 and bounded(own, sides[0], epsilon)):
                        raise Refused("a loss is not proved to be bounded as stated")
                    return
                if stated.by == "chernoff":
                    if not (lower == 0 and chernoff(own, sides, epsilon, stated.order) <= arb(upper)):
                        raise Refused("a bound is not confirmed")
                    return
                if stated.by == "gaussian":
                    value = one_covariance(own, len(sides), epsilon)
                else:
                    width = (upper - lower) / max(upper, 1e-300) / 256
                    value = integral(chain(own, known), sides, epsilon, stated.path, width)
            # δ is never below 0 nor above 1, whatever the enclosure leaves open.
            if (lower == 0 or value.lower() >= arb(lower)) and (upper == 1 or value.upper() <= arb(upper)):
                return
            if bits > 1024 or value.rel_accuracy_bits() > 40 or not known:
                raise Refused("an enclosure is not confirmed")
        except Imprecise:
            if bits > 2048:
                raise
        bits *= 3


def excludes(laws: Laws, pair: tuple[int, int], direction: str, epsilon: float, order: float, ideal: float) -> bool:
    """Whether δ of a pair is surely at most ``ideal``, by Chernoff's bound at this order."""
    if ideal == 1:
        return True
    common = supports(laws[pair[0]], laws[pair[1]])
    if common is None:
        return False
    for bits in (192 + 4 * laws.k, 768 + 16 * laws.k):
        try:
            with ctx.workprec(bits):
                bound = chernoff(parts(*common, laws.one_cov), SIDES[direction] * laws.times, epsilon, order)
                if bound <= arb(ideal):
                    return True
        except Imprecise:
            continue
    return False


def pairs_of(proof: dict[str, Any], header: dict[str, Any], arrays: dict[str, Any]) -> list[tuple[int, int]]:
    """The pairs of labels that the theorem is about: different labels, no pair twice, whichever comes first."""
    labels = header["labels"]
    if type(proof["own_graph"]) is not bool:
        raise Refused("the proof does not say whether it is about the file's own graph")
    if proof["own_graph"]:
        if proof["pairs"] is not None:
            raise Refused("a proof about the file's own graph lists pairs of its own")
        at = {name: i for i, name in enumerate(labels)}
        order = [at[name] for name in header.get("graph_labels", labels)]
        listed = arrays["edges"].tolist()
    else:
        order = list(range(len(labels)))
        listed = rows(proof["pairs"])
    pairs = []
    for one in listed:
        i, j = (order[place(end, len(order))] for end in rows(one, 2))
        if not i != j:
            raise Refused("a pair is of a label with itself")
        pairs.append((i, j))
    if not len({frozenset(pair) for pair in pairs}) == len(pairs):
        raise Refused("a pair is listed twice")
    return pairs


def worst_pairs(entries: list[Entry], pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs, in the direction stated, whose upper end is the largest; the first pair where all laws are equal."""
    if not entries:
        return pairs[:1]
    top = max((entry.upper, entry.lower) for entry in entries)
    chosen = [(pairs[e.row], e.direction) for e in entries if (e.upper, e.lower) == top]
    return [pair[::-1] if direction == "backward" else pair for pair, direction in chosen]


def check(proof: Any, content: bytes) -> str:
    """The theorem in words; raises Refused unless all of it is confirmed."""
    try:
        return follow_proof(proof, content)
    except (ArithmeticError, ValueError, MemoryError) as error:
        raise Refused(f"the proof cannot be followed ({type(error).__name__})") from error


def follow_proof(proof: Any, content: bytes) -> str:
    """The theorem in words, once everything that it rests on has been verified, from what is cheap to what is not."""
    if not isinstance(proof, dict):
        raise Unreadable("the proof is not a JSON object")
    if not (proof.get("format") == "shoal proof" and type(proof.get("version")) is int and proof["version"] == VERSION):
        raise Refused("this is not a proof file that this checker knows")
    fields(proof, PROOF)
    scope = proof["scope"]
    if not (isinstance(scope, str) and scope in DIRECTIONS):
        raise Refused("the scope is unknown")
    lower, ideal, upper, loss = (
        share(proof[name]) for name in ("delta_lower", "ideal_upper", "delta_upper", "finite_precision")
    )
    reasons, versions = rows(proof["unsettled"]), proof["versions"]
    if not all(isinstance(reason, str) for reason in reasons):
        raise Refused("the reasons why something is not settled are not sentences")
    if not (isinstance(versions, dict) and all(isinstance(one, str) for one in versions.values())):
        raise Refused("the versions of the proof are not texts")

    header, arrays, digest = read(content)
    if not proof["digest"] == digest:
        raise Refused("the proof is about another file")
    verify(header, arrays)
    pairs = pairs_of(proof, header, arrays)
    if not (type(proof["n_edges"]) is int and proof["n_edges"] == len(pairs) > 0):
        raise Refused("the number of pairs is not the one stated")
    given = proof["epsilon"]
    epsilon = [double(e) for e in (rows(given, len(pairs)) if isinstance(given, list) else [given] * len(pairs))]
    if not all(e >= 0 for e in epsilon):
        raise Refused("an ε is negative")

    # What accounts for which pair and direction, before anything is computed.
    entries = [entry_of(value, len(pairs), scope) for value in rows(proof["edges"])]
    excluded = [exclusion_of(value, len(pairs), scope) for value in rows(proof["excluded"])]
    equal = [place(value, len(pairs)) for value in rows(proof["equal"])]
    settled = [(entry.row, entry.direction) for entry in entries if entry.by not in ("apart", "unsettled")]
    settled += [(row, direction) for row, direction, _ in excluded]
    settled += [(row, each) for row in equal for each in DIRECTIONS[scope]]
    settled += [(entry.row, each) for entry in entries if entry.by == "apart" for each in DIRECTIONS[scope]]
    if not len(set(settled)) == len(settled):
        raise Refused("a pair is accounted for twice")
    unsettled = [(entry.row, each) for entry in entries if entry.by == "unsettled" for each in DIRECTIONS[scope]]
    missing = len(pairs) * len(DIRECTIONS[scope]) - len({*settled, *unsettled})
    if not missing == 0:
        raise Refused(f"{missing} edge(s) are not accounted for")
    if not bool(reasons) == bool(unsettled):
        raise Refused("the proof does not say what is not settled, or says so of what is")
    worst = [[header["labels"][i] for i in pair] for pair in worst_pairs(entries, pairs)]
    if proof["worst_edge"] not in worst:
        raise Refused("the pair that is named as the worst does not have the largest end")
    if not all(entry.upper <= ideal for entry in entries):
        raise Refused("the stated upper end does not follow from those of the edges")
    if not lower <= max((entry.lower for entry in entries), default=0.0):
        raise Refused("the stated lower end does not follow from those of the edges")
    if not (upper == 1 or Fraction(upper) >= Fraction(ideal) + Fraction(loss)):
        raise Refused("the stated δ lacks what finite precision costs")

    laws = Laws(header, arrays)
    if not (precision(laws, pairs, epsilon, scope) <= loss if laws.released else loss == 0):
        raise Refused("finite precision does not cost what is stated")
    for row in equal:
        if not same(*(laws[i] for i in pairs[row])):
            raise Refused("two laws are stated to be equal and are not")
    for entry in entries:
        confirm(laws, entry, pairs[entry.row], epsilon[entry.row])
    for row, direction, order in excluded:
        if not excludes(laws, pairs[row], direction, epsilon[row], order, ideal):
            raise Refused("an edge is not proved to lie below the stated δ")
    return theorem(proof["own_graph"], laws, pairs, epsilon, scope, (lower, upper), digest)


def theorem(
    own_graph: bool,
    laws: Laws,
    pairs: list[tuple[int, int]],
    epsilon: list[float],
    scope: str,
    ends: tuple[float, float],
    digest: str,
) -> str:
    """The confirmed theorem, in one sentence that can be read without the proof."""
    count = f"{len(pairs)} pair(s) of different labels"
    where = (
        f"all {count} of the file's own graph" if own_graph else f"the {count} listed in the proof (not a whole graph)"
    )
    least, most = min(epsilon), max(epsilon)
    at = f"ε = {most!r}" if least == most else f"each pair's own ε, from {least!r} to {most!r},"
    answers = "one answer" if laws.times == 1 else f"all {laws.times} answers"
    what = f"{answers} about one label" if scope == "answer" else f"a table with {answers} about every label"
    if laws.released:
        return (
            f"confirmed: for {where}, at {at} scope {scope} ({what}), the largest δ is at most {ends[1]!r} "
            f"for answers as they are released, and at least {ends[0]!r} before rounding; mechanism {digest}"
        )
    return (
        f"confirmed: for {where}, at {at} scope {scope} ({what}), the largest δ lies between {ends[0]!r} "
        f"and {ends[1]!r}; laws {digest}"
    )


def content_of(name: str, most: int) -> bytes:
    """The bytes of a file, if there are not too many."""
    try:
        with open(name, "rb") as file:
            if not os.fstat(file.fileno()).st_size <= most:
                raise Unreadable(f"{os.path.basename(name)} has more than {most:,} bytes")
            content = file.read(most + 1)
    except OSError as error:
        raise Unreadable(f"{os.path.basename(name)} cannot be opened ({error.strerror})") from error
    if not 0 < len(content) <= most:
        raise Unreadable(f"{os.path.basename(name)} is empty, or has more than {most:,} bytes")
    return content


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python checker.py proof.json mechanism-file", file=sys.stderr)
        return 2
    try:
        proof = parse(content_of(arguments[0], MOST_PROOF))
        print(check(proof, content_of(arguments[1], MOST_FILE)))
    except Refused as reason:
        print(f"refused: {reason}", file=sys.stderr)
        return 2 if isinstance(reason, Unreadable) else 1
    return 0


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):  # where there is no ε, its number is written
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))
