"""``prove``: δ(ε) as a theorem about stored parameters, over every edge of a graph.

The worst edge, by the accounting, is enclosed first, as narrowly as possible. All others need only lie below its upper
end: their laws are equal, Chernoff's bound says so, or they are enclosed just narrowly enough. What finite precision
adds to δ of released answers is bounded by ``noise.grid`` and added. ``checker`` checks a proof file without shoal.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np

import shoal
from shoal import archive, validation
from shoal.accounting.curve import NOTIONS, log_delta_brackets
from shoal.accounting.releases import SCOPES, Releases
from shoal.accounting.spectrum import edge_spectra
from shoal.errors import InputError, ShoalError
from shoal.files import write_private
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.discrete_loss import log_rounded_up
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import laws_file_parts
from shoal.noise.grid import UP as LOSS_UP
from shoal.noise.grid import NoiseGrid, edge_delta_increase, label_total_variation
from shoal.proofs import enclosure
from shoal.proofs.dyadic_laws import DyadicLaws, LawPair, NotSettled, lower_double, upper_double
from shoal.proofs.enclosure import Path
from shoal.proofs.pencil import Pencil, pencil
from shoal.rounding import upper
from shoal.validation import FloatArray, IndexArray

FORMAT, VERSION = "shoal proof", 1
#: Both ends are stated this much outside of what was found, relative to δ and to the width of what was found, so that
#: another program with roundings of its own agrees. Laws that are not known exactly make wide enclosures, by how much
#: depends on the route.
MARGIN, WIDER, MUCH_WIDER, KNOWN = 2.0**-50, 2, 8, 2.0**-48
#: An edge whose ln δ is this far below the worst is first tried with Chernoff's bound.
WORTH_TRYING = 0.3
#: The widest enclosure, relative to δ, of an edge that needs no narrower one; and the share of what lies between it and
#: the worst that an enclosure may be wide.
COARSEST, SHARE = 2.0**-6, 1 / 12
#: Least distance to the grid's next power of two, relative, at which two programs agree on it.
DECIDED = 2.0**-36
#: Answers about each label, of unequal covariances, up to which integrals are tried.
MOST_TIMES = 6
#: Integrals that a certificate is worth without being asked.
EFFORT = 64
#: Edges whose spectra are estimated at once.
BLOCK = 4096
DIRECTIONS = {"answer": ("forward", "backward"), "table": ("table",)}
SIDES = {"forward": (False,), "backward": (True,), "table": (False, True)}


class EdgeProof(NamedTuple):
    """lower ≤ δ ≤ upper of one edge in one direction, and ``by`` what: an integral along ``path``, Chernoff's bound at
    ``order``, equal covariances (``gaussian``), or that the loss is ``bounded`` below ε, the supports are ``apart``, or
    nothing could be ``settled``."""

    edge: int
    direction: str
    by: str
    lower: float
    upper: float
    path: Path | None = None
    order: float | None = None


class Exclusion(NamedTuple):
    """An edge in one direction whose δ is at most Chernoff's bound at ``order``, which is below that of another."""

    edge: int
    direction: str
    order: float


@dataclass(frozen=True)
class Proof:
    """A theorem: ``delta_lower`` ≤ δ(ε) of the real-valued answers, and δ(ε) of released ones ≤ ``delta_upper``.

    ``ideal_upper`` is the upper end before ``finite_precision`` is added. ``epsilon`` is one number, or one per edge
    where they differ. ``digest`` names what was proved (a mechanism's own, or that of the laws and edges), and
    ``own_graph`` says that the edges are the mechanism's. ``edges`` holds the enclosures of edges proved one by one;
    the others are ``excluded`` or have laws that are ``equal``. ``unsettled`` says why there is no more than
    [``delta_lower``, 1], where that is so.
    """

    digest: str
    scope: str
    epsilon: float | tuple[float, ...]
    delta_lower: float
    delta_upper: float
    ideal_upper: float
    finite_precision: float
    worst_edge: tuple[str, str]
    n_edges: int
    pairs: tuple[tuple[int, int], ...]
    own_graph: bool
    edges: tuple[EdgeProof, ...]
    excluded: tuple[Exclusion, ...]
    equal: tuple[int, ...]
    unsettled: tuple[str, ...]
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The content of a proof file: doubles as hexadecimal strings, so that none is rounded."""
        stated = [{name: value for name, value in one._asdict().items() if value is not None} for one in self.edges]
        own = vars(self) | {
            "format": FORMAT,
            "version": VERSION,
            "pairs": None if self.own_graph else self.pairs,
            "edges": [edge | ({"path": vars(edge["path"])} if "path" in edge else {}) for edge in stated],
            "excluded": [[one.edge, one.direction, repr(one.order)] for one in self.excluded],
        }
        return json.dumps(_hexadecimal(own), ensure_ascii=False, sort_keys=True) + "\n"

    @property
    def file_digest(self) -> str:
        """SHA-256 of the proof file."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def save(self, file: str | FilePath) -> None:
        """Write the proof file."""
        write_private(file, self.to_json().encode())

    def __str__(self) -> str:
        a, b = self.worst_edge
        where = f"proved over {self.n_edges} edge(s), worst for {a} against {b}"
        doubt = f"; not settled: {'; '.join(self.unsettled)}" if self.unsettled else ""
        return f"δ ≤ {upper(self.delta_upper)} ({self.scope}), {where}{doubt}"

    def __repr__(self) -> str:
        return f"Proof({self})"


def prove(
    released: GaussianClasses | Mechanism,
    graph: NeighborGraph | None = None,
    epsilon: float | None = None,
    scope: str | None = None,
    *,
    effort: int | None = None,
) -> Proof:
    """A rigorous enclosure of δ(ε), by ball arithmetic, from the parameters as they are stored.

    Args:
        released: A mechanism, or laws. Of a mechanism the laws of what it releases are formed without rounding,
            ``delta_upper`` includes what finite precision adds, and all answers about a label that it is for count.
            DyadicLaws are taken as they are, up to their ``errors``.
        graph: The neighbors; None for those of the mechanism.
        epsilon: ε in nats; None for that of the mechanism's design, edge by edge.
        scope: "answer" for one answer about one label, "table" for everyone's at once; None for that of the mechanism's
            design, and "answer" for laws.
        effort: Integrals to spend at most, 10 to 200 ms each; None for as many as it takes. Nothing is settled beyond.

    Returns:
        The proof. What cannot be settled is enclosed by [lower, 1] and named in ``unsettled``.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"]).with_noise(16.0)
    >>> proof = shoal.prove(classes, shoal.NeighborGraph.complete(classes.labels), epsilon=1.0)
    >>> proof.n_edges, f"{proof.delta_lower:.10e}", f"{proof.delta_upper:.10e}"
    (1, '2.9242721049e-06', '2.9242721049e-06')
    """
    if isinstance(released, GaussianClasses):
        if graph is None:
            raise InputError("graph must be given for laws: which labels are neighbors")
        mechanism, laws_alone = _identity_mechanism(released), True
    else:
        if not hasattr(type(released), "by_kind"):
            raise InputError("released must be a Mechanism or GaussianClasses")
        if released.by_kind(mechanism=lambda _: False, codebook=lambda _: True):
            raise InputError(
                "released must not be a codebook: that keeps its ε in integers, with nothing left to prove"
            )
        mechanism, laws_alone, graph = released, False, released.graph if graph is None else graph
    scope = validation.choice(SCOPES, scope=mechanism.scope if scope is None else scope)
    pairs = Releases.collect(mechanism.classes).edge_positions(graph)
    if len(pairs) == 0:
        raise InputError("graph must have at least one edge")
    own = laws_alone or bool(np.array_equal(pairs, mechanism.pairs))
    if epsilon is not None:
        at = np.full(len(pairs), validation.non_negative(epsilon=epsilon))
    elif own and not laws_alone:
        at = np.asarray(mechanism.epsilon, dtype=np.float64)
    else:
        raise InputError("epsilon must be given, unless it is that of a mechanism's design on its own graph")

    laws = DyadicLaws(mechanism)
    left = math.inf if effort is None else validation.count(effort=effort)
    search = _EdgeSearch(laws, pairs, at, scope, mechanism.times, left)
    search.settle_all_edges(mechanism.output)
    loss = 0.0 if laws_alone else _precision_loss(mechanism, laws, pairs, at, scope)
    ideal = max((edge.upper for edge in search.proved), default=0.0)
    worst = max(search.proved, key=lambda e: (e.upper, e.lower), default=None)
    i, j = pairs[0] if worst is None else pairs[worst.edge][:: -1 if worst.direction == "backward" else 1]
    total = ideal + loss if 0.0 in (ideal, loss) else min(math.nextafter(ideal + loss, math.inf), 1.0)
    return Proof(
        digest=archive.digest(*laws_file_parts(mechanism.classes, pairs)) if laws_alone else mechanism.digest,
        scope=scope,
        epsilon=float(at[0]) if (at == at[0]).all() else tuple(at.tolist()),
        delta_lower=max((edge.lower for edge in search.proved), default=0.0),
        delta_upper=total,
        ideal_upper=ideal,
        finite_precision=loss,
        worst_edge=(mechanism.labels[i], mechanism.labels[j]),
        n_edges=len(pairs),
        pairs=tuple((int(a), int(b)) for a, b in pairs),
        own_graph=own,
        edges=tuple(search.proved),
        excluded=tuple(search.excluded),
        equal=tuple(search.equal),
        unsettled=tuple(sorted(search.unsettled)),
        versions={"shoal": shoal.__version__, "python-flint": version("python-flint")},
    )


def _identity_mechanism(classes: GaussianClasses) -> Mechanism:
    """The mechanism that releases answers with these laws unchanged."""
    (n, k), edgeless = classes.means.shape, NeighborGraph(classes.labels, np.empty((0, 2), dtype=np.intp))
    nothing = np.zeros((1, k)), None, np.zeros((1, k, k))
    return Mechanism("none", classes, edgeless, np.empty(0), "dp", *nothing, np.zeros(n))


def prove_mechanism(mechanism: Mechanism) -> tuple[Mechanism, Proof]:
    """The mechanism with a certificate that is proved, or says why not, and the proof.

    Work is bounded, by ``EFFORT`` for each group. Where the proof's end is the larger one the certificate takes it, and
    where there was none.
    """
    own, groups = mechanism.certificate, len(set(mechanism.graph.components.tolist()))
    proof = prove(mechanism, effort=EFFORT * groups)
    if proof.unsettled:
        certificate = replace(own, unproved="; ".join(proof.unsettled))
    elif proof.delta_upper >= 1:
        certificate = replace(own, unproved="nothing below 1 holds")
    else:
        certificate = replace(own, proved=True, unproved="", proof=proof.file_digest)
        if not proof.delta_upper <= own.delta_upper < 1:
            log_upper = float(log_rounded_up(np.array(proof.delta_upper)))
            certificate = replace(certificate, delta_upper=proof.delta_upper, log_delta_upper=log_upper)
    return mechanism.with_certificate(certificate), proof


@dataclass(eq=False)
class _EdgeSearch:
    """Edges from the worst to the least; each is equal, excluded or proved."""

    laws: DyadicLaws
    pairs: IndexArray
    epsilon: FloatArray
    scope: str
    times: int
    left: float
    proved: list[EdgeProof] = field(default_factory=list)
    excluded: list[Exclusion] = field(default_factory=list)
    equal: list[int] = field(default_factory=list)
    unsettled: set[str] = field(default_factory=set)
    upper: float = 0.0

    def settle_all_edges(self, classes: GaussianClasses) -> None:
        """Settle every edge; ``classes`` are the laws as the accounting sees them, to choose the order by."""
        directions = DIRECTIONS[self.scope]
        releases = Releases.collect(classes, self.scope, self.times)
        guesses, orders = np.zeros((2, len(directions), len(self.pairs)))
        for start in range(0, len(self.pairs), BLOCK):
            rows = slice(start, start + BLOCK)
            pairs, epsilon = self.pairs[rows], self.epsilon[rows]
            try:
                spectra = edge_spectra(classes, pairs)
                offsets = np.repeat(epsilon[:, None], len(directions), axis=1)
                ends = log_delta_brackets(releases, pairs, NOTIONS["dp"], np.zeros(1), offsets)[:, :, 0]
            except ShoalError:
                orders[:, rows] = 1.0
                continue
            # To choose by: ln δ, or its upper end where nothing is known from below.
            guesses[:, rows] = np.nan_to_num(np.where(ends[..., 1] > -math.inf, ends[..., 0], ends[..., 2]), nan=0.0).T
            for d, direction in enumerate(directions):
                sides = SIDES[direction] * min(self.times, MOST_TIMES)
                g, w = enclosure.directed_spectrum(spectra.g, spectra.w**2, sides)
                orders[d, rows] = enclosure.saddle_points(g, w, epsilon, chernoff=True)
        for row in np.argsort(-guesses.max(axis=0), kind="stable").tolist():
            self._settle_edge(row, guesses[:, row], orders[:, row])
        self.equal.sort()
        self.excluded.sort()

    def _settle_edge(self, row: int, guesses: FloatArray, orders: FloatArray) -> None:
        """Settle all directions of one edge, given estimates of ln δ and orders for Chernoff's bound."""
        directions, epsilon = DIRECTIONS[self.scope], float(self.epsilon[row])
        frame: Pencil | None = None
        try:
            pair = self.laws.pair(*self.pairs[row].tolist())
            if pair is True:
                self.equal.append(row)
                return
            if pair is False:
                self._record(EdgeProof(row, directions[0], "apart", 1.0, 1.0))
                return
            for direction, guess, order in zip(directions, guesses, orders, strict=True):
                sides = SIDES[direction] * self.times
                if self.upper == 1.0:
                    self.excluded.append(Exclusion(row, direction, 1.0))
                    continue
                if self.upper > 0 and guess < math.log(self.upper) - WORTH_TRYING:
                    order = float(f"{order:.4g}")
                    bound = enclosure.chernoff_bound(pair, sides, epsilon, order)
                    if bound is not None and upper_double(bound * (1 + MARGIN)) <= self.upper:
                        self.excluded.append(Exclusion(row, direction, order))
                        continue
                if pair.equal_covs:
                    ends = enclosure.equal_covariance_enclosure(pair, sides, epsilon)
                    self._record(_stated_enclosure(row, direction, "gaussian", ends, coarse=False))
                    continue
                if self.times > MOST_TIMES:
                    raise NotSettled(f"more than {MOST_TIMES} answers about each label, of unequal covariances")
                frame = frame or pencil(pair)
                self._integrate_edge(row, direction, pair, frame, epsilon, guess)
        except NotSettled as reason:
            self.unsettled.add(str(reason))
            self._record(EdgeProof(row, directions[0], "unsettled", 0.0, 1.0))

    def _integrate_edge(
        self, row: int, direction: str, pair: LawPair, frame: Pencil, epsilon: float, guess: float
    ) -> None:
        """Enclose δ in one direction by integrals, as coarsely as what lies between it and the worst allows."""
        room = -math.expm1(min(guess - math.log(self.upper), 0.0)) if self.upper > 0 else 0.0
        coarse = min(COARSEST, SHARE * room)
        for goal in (coarse, enclosure.GOAL) if coarse > 2.0**-30 else (enclosure.GOAL,):
            self.left -= 1
            if self.left < 0:
                raise NotSettled("it would take more integrals than were asked for: shoal prove goes to the end")
            ends = enclosure.enclose_delta(pair, frame, SIDES[direction] * self.times, epsilon, goal)
            by = "integral" if ends.path else "chernoff" if ends.order else "bounded"
            if by == "bounded" and ends.upper == 1:
                raise NotSettled("no enclosure was found within the limits on precision and work")
            stated = _stated_enclosure(row, direction, by, ends, coarse=goal > enclosure.GOAL)
            if goal == enclosure.GOAL or stated.upper <= self.upper:
                self._record(stated)
                return

    def _record(self, one: EdgeProof) -> None:
        """Add an enclosure to the proof; its upper end may become the worst."""
        self.proved.append(one)
        self.upper = max(self.upper, one.upper)


def _stated_enclosure(row: int, direction: str, by: str, ends: enclosure.Enclosure, coarse: bool) -> EdgeProof:
    """An enclosure as a proof states it: a little wider, so that a program with roundings of its own confirms it."""
    width, slack = ends.upper - ends.lower, 0
    if by in ("integral", "gaussian"):
        wider = 1 if coarse else WIDER if width < KNOWN * ends.upper else MUCH_WIDER
        slack = MARGIN * ends.upper + wider * width
    low, high = lower_double(ends.lower - slack), upper_double(ends.upper * (1 + MARGIN) + slack)
    return EdgeProof(row, direction, by, max(0.0, low), min(high, 1.0), ends.path, ends.order)


def _precision_loss(
    mechanism: Mechanism, laws: DyadicLaws, pairs: IndexArray, epsilon: FloatArray, scope: str
) -> float:
    """Upper bound on what finite precision adds to δ of released answers, over these pairs.

    Where the grid's step is next to the point at which it doubles it is taken at half, so that nobody need decide. A
    law that is singular although its label's answers vary rests on rounded numbers, and nothing is claimed about it.
    """
    n, k = mechanism.classes.means.shape
    variances = np.broadcast_to(np.diagonal(mechanism.noise_cov, axis1=1, axis2=2), (n, k))
    means, covs = laws.rounded_moments
    std = np.sqrt(np.maximum(np.diagonal(covs, axis1=1, axis2=2), 0.0))
    steps = np.minimum(NoiseGrid.from_moments((1 - DECIDED) * means, (1 - DECIDED) * std).steps, mechanism.grid)
    tv = label_total_variation(np.sqrt(variances), steps)
    tv = mechanism.times * tv * (1.0 if mechanism.times == 1 else LOSS_UP)
    moved = mechanism.bias.any(axis=1) if mechanism.gain is None else np.ones(n, dtype=bool)
    random = np.broadcast_to(mechanism.classes.stored_variances.any(axis=1), (n,))
    for i in np.intersect1d(np.flatnonzero(moved & random), pairs):
        if not laws[int(i)].is_definite:
            tv[i] = 1.0
    return edge_delta_increase(tv, pairs, epsilon, table=scope == "table")


def _hexadecimal(value: Any) -> Any:
    """Doubles as hexadecimal strings, inside of lists and mappings too."""
    if isinstance(value, dict):
        return {name: _hexadecimal(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hexadecimal(one) for one in value]
    return value.hex() if isinstance(value, float) else value
