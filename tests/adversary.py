"""An analyst who picks every mechanism by the answers so far, and takes the best of all ways to do so.

One entry, one pair, one direction: all that counts is the loss so far. Each kind of mechanism is written out in closed
form, without the library. The best policy is found by looking from the last round back to the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erfc, log_ndtr, ndtr

NODES, HALF = 121, 8.5
_XI = np.linspace(-HALF, HALF, NODES)
_WEIGHTS = np.exp(-0.5 * _XI**2) / math.sqrt(2 * math.pi) * (_XI[1] - _XI[0])


@dataclass(frozen=True)
class Kind:
    """A mechanism: ``gap`` N(μ, 1) against N(0, 1), ``wide`` N(0, 1+s) against N(0, 1), ``narrow`` the other way round,
    ``coin`` an answer that is true with odds e^s. A strength of 0 is no release."""

    name: str
    strength: float

    def losses(self) -> tuple[np.ndarray, np.ndarray]:
        """Points and weights for means over the loss."""
        s = self.strength
        if s == 0.0:
            return np.zeros(1), np.ones(1)
        if self.name == "gap":
            return s * s / 2 + s * _XI, _WEIGHTS
        if self.name == "wide":
            return -0.5 * math.log1p(s) + 0.5 * s * _XI**2, _WEIGHTS
        if self.name == "narrow":
            return 0.5 * math.log1p(s) - 0.5 * s / (1 + s) * _XI**2, _WEIGHTS
        likely = 1 / (1 + math.exp(-s))
        return np.array([s, -s]), np.array([likely, 1 - likely])

    def delta(self, x: np.ndarray) -> np.ndarray:
        """δ at each x, in closed form."""
        s = self.strength
        x = np.asarray(x, dtype=float)
        if s == 0.0:
            return np.maximum(-np.expm1(x), 0.0)
        if self.name == "gap":
            return ndtr(s / 2 - x / s) - np.exp(x + log_ndtr(-s / 2 - x / s))
        if self.name == "wide":
            a = 2 * (x + 0.5 * math.log1p(s)) / s
            inside = np.maximum(a, 0.0)
            found = erfc(np.sqrt(inside / 2)) - np.exp(x) * erfc(np.sqrt(inside * (1 + s) / 2))
            return np.maximum(found, 0.0)
        if self.name == "narrow":
            b = np.maximum(2 * (0.5 * math.log1p(s) - x) * (1 + s) / s, 0.0)
            found = (1 - erfc(np.sqrt(b / 2))) - np.exp(x) * (1 - erfc(np.sqrt(b / (1 + s) / 2)))
            return np.maximum(found, 0.0)
        points, weights = self.losses()
        return np.maximum(-np.expm1(x[..., None] - points), 0.0) @ weights

    def divergence(self, t: float) -> float:
        """The Rényi divergence of order 1 + t."""
        s = self.strength
        if s == 0.0:
            return 0.0
        if self.name == "gap":
            return (1 + t) * s * s / 2
        if self.name == "wide":
            return math.inf if t * s >= 1 else (-t / 2 * math.log1p(s) - 0.5 * math.log1p(-t * s)) / t
        if self.name == "narrow":
            return (t / 2 * math.log1p(s) - 0.5 * math.log1p(t * s / (1 + s))) / t
        likely = 1 / (1 + math.exp(-s))
        return (t * s + math.log(likely + (1 - likely) * math.exp(-2 * t * s))) / t

    @property
    def largest(self) -> float:
        """The largest loss."""
        bounded = {"coin": self.strength, "narrow": 0.5 * math.log1p(self.strength)}
        return 0.0 if self.strength == 0.0 else bounded.get(self.name, math.inf)


#: Whether a sequence is let through.
Allowed = Callable[[Sequence[Kind]], bool]


def composed(sequence: Sequence[Kind], epsilon: float) -> float:
    """δ(ε) of a sequence that was fixed in advance."""
    *first, last = sorted(sequence, key=lambda kind: kind.strength > 0 and kind.name != "coin")
    loss, weight = np.zeros(1), np.ones(1)
    for kind in first:
        points, weights = kind.losses()
        loss, weight = (loss[:, None] + points).ravel(), (weight[:, None] * weights).ravel()
    return float(last.delta(epsilon - loss) @ weight)


def strongest(name: str, before: Sequence[Kind], allowed: Allowed, steps: int = 18) -> Kind:
    """The strongest mechanism of a kind that is let through after others."""
    low, high = 0.0, 1.0
    while allowed([*before, Kind(name, high)]) and high < 64:
        low, high = high, 2 * high
    for _ in range(steps):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if allowed([*before, Kind(name, middle)]) else (low, middle)
    return Kind(name, low)


def best_policy(names: Sequence[str], shares: Sequence[float], rounds: int, epsilon: float, allowed: Allowed) -> float:
    """The largest δ(ε) of an interaction of two or three rounds, every round chosen by the loss so far.

    All rounds but the last choose among kinds at ``shares`` of the strongest that is let through alone; the last is the
    strongest that still is, of each kind.
    """
    menu = [Kind("gap", 0.0)]
    for name in names:
        alone = strongest(name, [], allowed)
        menu += [Kind(name, share * alone.strength) for share in shares]
    best = 0.0
    for first in menu:
        if not allowed([first]):
            continue
        loss, weight = first.losses()
        options = menu if rounds == 3 else menu[:1]
        best = max(best, float(first.delta(np.array(epsilon))))
        reached = []
        for second in options:
            if not allowed([first, second]):
                continue
            points, weights = second.losses()
            sums = loss[:, None] + points
            ends = [end for name in names if (end := strongest(name, [first, second], allowed)).strength > 0.0]
            if ends:
                reached.append(np.max([end.delta(epsilon - sums) for end in ends], axis=0) @ weights)
            elif second.strength > 0.0:
                reached.append(second.delta(epsilon - loss))
        if reached:
            best = max(best, float(np.max(reached, axis=0) @ weight))
    return best


def together(sequence: Sequence[Kind], t: Sequence[float]) -> np.ndarray:
    """Sums of the divergences at orders 1 + t."""
    return np.array([math.fsum(kind.divergence(x) for kind in sequence) for x in t])


def released(sequence: Sequence[Kind]) -> list[Kind]:
    """What is really released of a sequence."""
    return [kind for kind in sequence if kind.strength > 0.0]
