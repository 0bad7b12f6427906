"""design, calibrate, frontier and perfect_rho: the public face of the designer."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import round_up
from shoal.classes import GaussianClasses
from shoal.designs.barycenter import additive_center, transport_center
from shoal.designs.bounds import lower_bound
from shoal.designs.descent import Report, Settings
from shoal.designs.mechanism import Mechanism, certified
from shoal.designs.methods.additive import additive
from shoal.designs.methods.center import center
from shoal.designs.methods.covariance import covariance
from shoal.designs.methods.paper import paper
from shoal.designs.methods.transport import transport
from shoal.designs.methods.white import none, white
from shoal.designs.moves import Moves
from shoal.designs.problem import Problem
from shoal.errors import InputError, UnreachableError
from shoal.graph import NeighborGraph
from shoal.validation import FloatArray

METHODS = ("none", "white", "paper", "covariance", "additive", "transport", "center")
SEARCHED = {"covariance": covariance, "additive": additive, "transport": transport}
#: How the note of a design begins whose search was cut short.
OUT_OF_TIME = "the time limit ended the search"


def design(
    classes: GaussianClasses,
    graph: NeighborGraph,
    method: str = "transport",
    epsilon: Any = 1.0,
    rho: Any = None,
    notion: str = "dp",
    seed: int = 0,
    *,
    weights: Sequence[float] | None = None,
    noise_floor: float = 0.0,
    max_bias: float = 1.0,
    rho_is_total: bool = False,
    time_limit: float | None = None,
    iterations: int | None = None,
    interruptible: bool = False,
    start: Mechanism | Sequence[Mechanism] | None = None,
    progress: Report | None = None,
) -> Mechanism:
    """Choose how to perturb each label's answer so that the worst edge's δ at ε is least, within the error budget ρ.

    Args:
        classes: laws of the true answer given each label.
        graph: which labels must stay indistinguishable.
        method: ``"none"``, ``"white"`` (equal noise), ``"paper"`` (Algorithm 1), ``"covariance"`` (zero-mean noise per
            label), ``"additive"`` (noise means too), ``"transport"`` (affine maps plus noise: the strongest) or
            ``"center"`` (straight towards the group's common law: one pass over the labels).
        epsilon: one ε, or one per edge of the graph.
        rho: largest mean squared error per entry, (1/k) E‖released − q‖²: one number, one per label in label order, or
            a mapping from label to number.
        notion: the δ to minimize, as in :func:`shoal.privacy_curve`.
        seed: seed of the search's own randomness; equal seeds give equal mechanisms.
        weights: how much each entry's squared error counts, relative to the others.
        noise_floor: least variance of independent noise in every direction, so that protection does not rest on the
            class model alone.
        max_bias: largest share of ρ that may be bias.
        rho_is_total: take ρ as the total squared error, as the paper's experiments do, instead of per entry.
        time_limit: seconds after which the best design so far is returned.
        iterations: steps per stage of the search; by default fewer on larger problems.
        interruptible: let an interrupt through instead of returning the best design so far.
        start: earlier mechanisms for the same labels to start from, such as those of a neighboring ρ.
        progress: called after each stage with (stage, stages, best ln δ so far). Ctrl-C ends a search with its best.

    A stronger method never returns a worse δ than a weaker one it contains on the same problem: white and paper ≤
    covariance ≤ additive ≤ transport, and center ≤ transport. Designs are compared by the δ of their ideal output laws;
    the certificate is computed from the final parameters and includes what their rounding and finite precision cost:
    about 3e-28 for constant answers that meet (k = 12), at ε = 0 about 1e-14 to 1e-12 for random answers that meet.
    """
    validation.choice(METHODS, method=method)
    if rho is None:
        raise InputError("rho must be given: the mean squared error per entry that may be spent")
    if rho_is_total:
        k = classes.n_dims
        rho = {name: v / k for name, v in rho.items()} if isinstance(rho, Mapping) else np.divide(rho, k)
    problem = Problem.of(classes, graph, epsilon, rho, notion, weights, noise_floor, max_bias)
    settings = replace(_settings(problem, seed, time_limit, iterations, progress), interruptible=interruptible)
    starts = [start] if isinstance(start, Mechanism) else list(start or [])
    return _solve(problem, method, settings, [as_moves(problem, m) for m in starts])


def _settings(
    problem: Problem, seed: int, time_limit: float | None, iterations: int | None, progress: Report | None
) -> Settings:
    if iterations is None:
        iterations = 100 if len(problem.pairs) <= 500 else 40 if len(problem.pairs) <= 6000 else 25
    deadline = math.inf
    if time_limit is not None:
        deadline = time.monotonic() + validation.positive(time_limit=time_limit)
    return Settings(
        iterations=validation.count(iterations=iterations),
        deadline=deadline,
        report=progress,
        seed=validation.count(seed=seed, at_least=0),
    )


def _solve(problem: Problem, method: str, settings: Settings, starts: Sequence[Moves]) -> Mechanism:
    notes: list[str] = []
    history: FloatArray | None = None
    if problem.noise_floor > 0 and method == "none":
        raise InputError("noise_floor: the method 'none' adds no noise; choose another method")
    if method == "none":
        moves = none(problem)
    elif method == "white":
        moves = white(problem)
    elif method == "paper":
        moves, history = paper(problem, settings)
    else:
        moves = _by_component(problem, method, settings, starts)
        if method in SEARCHED and len(problem.components) > 1 and not settings.late:
            # The simple methods look at all components together; but for Algorithm 1, each component has tried them.
            whole = [white(problem), paper(problem, settings)[0]]
            if problem.noise_floor == 0:
                whole.append(none(problem))
            moves = min([moves, *whole], key=lambda m: certified(problem, m))
        if method == "transport" and moves.map is None:
            notes.append("no map improved on independent noise: this is the additive design")
        if method in ("additive", "transport") and not moves.shift.any():
            notes.append("no shift of the means improved the design: its noise has mean zero")
    if method == "paper" or method in SEARCHED:
        if settings.interrupted.is_set():
            notes.append("an interrupt ended the search: this is the best design found until then")
        elif settings.late:
            notes.append(f"{OUT_OF_TIME}: this is the best design found until then")
    bound = 0.0 if method == "none" else lower_bound(problem)
    return Mechanism.of(method, problem, moves, lower_bound=bound, notes=tuple(notes), history=history)


def _by_component(problem: Problem, method: str, settings: Settings, starts: Sequence[Moves]) -> Moves:
    """Design every connected component for itself: they share no edge, so each can do its best.

    A label without neighbors has nobody to hide among and is left as it is, but for the noise floor.
    """
    alone = [members for members in problem.components if len(members) > 1]
    parts = []
    for number, members in enumerate(alone):
        part = problem.part(members)
        if method == "center":
            parts.append(center(part))
            continue
        share = settings.part(1.0 / (len(alone) - number))
        parts.append(SEARCHED[method](part, share, [start.take(members) for start in starts]))
    if len(parts) == 1 and len(alone[0]) == problem.n_labels:
        return parts[0]
    result = Moves.still(problem, mapped=any(moves.map is not None for moves in parts))
    for members, moves in zip(alone, parts, strict=True):
        result.put(members, moves)
    return result


def as_moves(problem: Problem, mechanism: Mechanism) -> Moves:
    """An earlier mechanism's parameters as moves of this problem."""
    if mechanism.classes.labels != problem.classes.labels or mechanism.classes.n_dims != problem.n_dims:
        raise InputError("start must be a mechanism for the same labels and entries")
    n, k = problem.n_labels, problem.n_dims
    scale = problem.scale
    shift = np.array(np.broadcast_to(mechanism.shift * scale, (n, k)))
    noise = mechanism.noise_cov * scale[:, None] * scale[None, :] - problem.floor_cov
    values, vectors = np.linalg.eigh(np.broadcast_to(noise, (n, k, k)))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    if mechanism.gain is None:
        return Moves(shift, None, root)
    gain = mechanism.gain * scale[:, None] / scale[None, :]
    return Moves(shift, gain @ problem.roots, root)


def perfect_rho(classes: GaussianClasses, graph: NeighborGraph, method: str = "transport") -> float:
    """Least ρ per entry at which all neighbors can be made exactly alike, δ = 0 at every ε, rounded up.

    ``"transport"``: minimax Bures–Wasserstein center of each connected component. ``"additive"``: noise and shifts.
    Found to a relative 1e-8; the price of the most expensive component counts.
    """
    validation.choice(["transport", "additive"], method=method)
    problem = Problem.of(classes, graph, 1.0, 1.0)
    find = transport_center if method == "transport" else additive_center
    price = 0.0
    for members in problem.components:
        if len(members) > 1:
            part = problem.classes.take(members)
            price = max(price, find(part.means, part.stored_covs).price)
    return price / classes.n_dims * (1 + 1e-12)


@dataclass(frozen=True)
class Frontier:
    """δ against ρ per method: ``delta_upper[method]`` and ``mechanisms[method]`` follow ``rho`` (ascending)."""

    rho: FloatArray
    epsilon: Any
    notion: str
    delta: dict[str, FloatArray]
    delta_upper: dict[str, FloatArray]
    log_delta: dict[str, FloatArray]
    mechanisms: dict[str, list[Mechanism]]

    def __repr__(self) -> str:
        return f"Frontier({', '.join(self.delta)}; {len(self.rho)} budgets)"

    def _repr_html_(self) -> str:
        from shoal.notebook import table

        columns = [[f"{round_up(float(d)):.4g}" for d in found] for found in self.delta_upper.values()]
        rows = [(f"{r:.4g}", *cells) for r, *cells in zip(self.rho, *columns, strict=True)]
        return table(f"δ, at most ({self.notion}), against ρ", ("ρ", *self.delta_upper), rows)

    def plot(self, axes: Any = None) -> Any:
        """Draw the upper ends of δ against ρ, a line per method, with matplotlib and return the axes."""
        from shoal.notebook import axes_or_new, draw_deltas

        return draw_deltas(axes_or_new(axes), self.rho, self.delta_upper, "ρ, mean squared error per entry")


def frontier(
    classes: GaussianClasses,
    graph: NeighborGraph,
    method: str | Sequence[str] = "transport",
    epsilon: Any = 1.0,
    rho: Sequence[float] = (),
    notion: str = "dp",
    seed: int = 0,
    **options: Any,
) -> Frontier:
    """Design at several budgets, each started from the one below it; with the searched methods δ never rises with ρ.

    A design for a smaller budget is also one for a larger, so where the search does not improve on it, it is kept.
    ``delta_upper`` is the certificates', finite precision included; ``delta`` and ``log_delta`` are the ideal laws'.
    """
    methods = [method] if isinstance(method, str) else list(method)
    budgets, _ = validation.grid(rho=rho)
    budgets = np.sort(budgets)
    mechanisms: dict[str, list[Mechanism]] = {}
    for name in methods:
        validation.choice(METHODS, method=name)
        done: list[Mechanism] = []
        for budget in budgets:
            found = design(classes, graph, name, epsilon, float(budget), notion, seed, start=done[-1:], **options)
            if name in SEARCHED and done:
                before = done[-1]
                if before.certificate.log_delta_upper < found.certificate.log_delta_upper:
                    found = before
            done.append(found)
        mechanisms[name] = done

    def gather(attribute: str) -> dict[str, FloatArray]:
        return {name: np.array([getattr(m.certificate, attribute) for m in done]) for name, done in mechanisms.items()}

    return Frontier(budgets, epsilon, notion, gather("delta"), gather("delta_upper"), gather("log_delta"), mechanisms)


def calibrate(
    classes: GaussianClasses,
    graph: NeighborGraph,
    method: str = "transport",
    epsilon: Any = 1.0,
    delta: float = 1e-6,
    notion: str = "dp",
    seed: int = 0,
    *,
    tolerance: float = 2e-3,
    **options: Any,
) -> Mechanism:
    """The least ρ at which a method meets (ε, δ), within a relative ``tolerance``; the answer certainly meets it.

    What is returned satisfies ``certificate.delta_upper <= delta``, finite precision included; a δ below what that
    costs is an UnreachableError. For the searched methods "least" means the least that the search found.
    """
    validation.choice(METHODS, method=method)
    delta = validation.probability(delta=delta, below_one=True)
    tolerance = validation.positive(tolerance=tolerance)
    bare = design(classes, graph, "none", epsilon, 1.0, notion)
    if options.get("noise_floor", 0.0) == 0 and bare.certificate.delta_upper <= delta:
        return bare
    if method == "none":
        raise UnreachableError(
            f"method 'none' gives delta = {round_up(bare.certificate.delta_upper):.4g} at this epsilon, not the delta "
            "asked for; choose a method that adds noise"
        )

    best: Mechanism | None = None

    def attempt(budget: float) -> Mechanism:
        start = [best] if best is not None and method in SEARCHED else None
        return design(classes, graph, method, epsilon, budget, notion, seed, start=start, **options)

    high = max(_enough(classes, graph, method), 2 * options.get("noise_floor", 0.0))
    floors: list[float] = []
    for _ in range(60):
        found = attempt(high)
        if found.certificate.delta_upper <= delta:
            best = found
            break
        if found._ideal.delta_upper <= delta <= found.certificate.finite_precision < 1:
            floors.append(found.certificate.finite_precision)
        if len(floors) == 3:
            break
        high *= 2.0
    if floors and best is None:
        raise UnreachableError(
            f"delta lies below what finite precision costs a release of method {method!r}, about "
            f"{round_up(min(floors)):.1g}; ask for a larger delta"
        )
    if best is None:
        raise UnreachableError(
            f"method {method!r} did not reach the delta asked for up to rho = {high:.4g}; allow more bias or less "
            "noise_floor, or choose a larger epsilon"
        )
    # What a mechanism really spends can be less than its budget.
    high = min(high, float(best.weighted_rho.max()))
    low = max(options.get("noise_floor", 0.0), 0.0)
    ratio = 0.5
    while high > low * (1 + tolerance):
        middle = high * ratio if low == 0 else math.sqrt(low * high)
        if not low < middle < high:
            break
        found = attempt(middle)
        if found.certificate.delta_upper <= delta:
            best, high = found, min(middle, float(found.weighted_rho.max()))
            ratio *= ratio if low == 0 and ratio > 1e-6 else 1.0
        else:
            low = middle
    return best


def _enough(classes: GaussianClasses, graph: NeighborGraph, method: str) -> float:
    """A budget to try first: the price of perfection where there is one, else a guess from the spread of the means."""
    if method in ("transport", "center"):
        return perfect_rho(classes, graph, "transport") * (1 + 1e-9)
    if method == "additive":
        return perfect_rho(classes, graph, "additive") * (1 + 1e-9)
    spread = float(classes.means.var(axis=0).mean()) + float(classes.stored_variances.mean())
    return max(spread, 1e-12)
