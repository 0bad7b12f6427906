"""One study for all examples: hide the label of a table's rows, attack what is released, say what it costs.

Where rows are samples, they are shared out label by label: a half for the laws and the mechanism, the other half to be
released. Of the released rows, as many of each label, two thirds train the attackers, with their true labels, and one
third tests them. Where every label has one row, attackers learn from releases of the same table. They are classifiers
of scikit-learn, which know nothing of Gaussian laws or of the mechanism.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import shoal
from shoal.audits.confidence import clopper_pearson_lower

CONFIDENCE = 0.95
#: Of a table of constants, for attackers to learn from.
RELEASES = 20


def attackers() -> dict[str, Any]:
    """Classifiers that are trained to name the label of a row."""
    return {
        "linear": LinearDiscriminantAnalysis(),
        "quadratic": QuadraticDiscriminantAnalysis(reg_param=0.1),
        "neighbors": make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
        "forest": RandomForestClassifier(50, random_state=0),
    }


@dataclass(frozen=True, eq=False)
class Study:
    """What an example found. ``before`` and ``after`` are each attacker's share of rows named rightly.

    ``after_lower`` is the best attacker's share at least, at 95 % over all attackers; ``promise`` is what no attacker
    exceeds if the laws are true. ``error`` (k,) is the error of the released rows in deviations of each column.
    """

    labels: tuple[str, ...]
    rows: NDArray[np.float64]
    released: NDArray[np.float64]
    names: NDArray[Any]
    hider: shoal.LabelHider
    before: dict[str, float]
    after: dict[str, float]
    after_lower: float
    promise: float
    error: NDArray[np.float64]

    @property
    def kept(self) -> bool:
        """Whether no attacker beat the promise beyond its confidence."""
        return self.after_lower <= self.promise

    def __str__(self) -> str:
        lines = [
            f"{len(self.labels)} labels, chance {1 / len(self.labels):.1%}",
            "named before: " + ", ".join(f"{name} {share:.1%}" for name, share in self.before.items()),
            "named after:  " + ", ".join(f"{name} {share:.1%}" for name, share in self.after.items()),
            f"promised: at most {self.promise:.1%}; the best attacker is right at least {self.after_lower:.1%}",
            f"error of released rows: {np.sqrt((self.error**2).mean()):.2f} deviations of a column",
        ]
        checks, guard = self.hider.checks_, self.hider.guard_
        if checks is not None and guard is not None:
            lines += [
                f"Gaussian law rejected for {int((~checks.gaussian).sum())} of {len(self.labels)} labels",
                f"δ over plausible laws: {guard.delta_at_confidence:.2g}, promised {guard.promise:.2g}",
            ]
        return "\n".join(lines)


def study(rows: Any, names: Any, *, epsilon: float = 1.0, delta: float = 1e-5, repeats: int = 1) -> Study:
    """Hide ``names`` of ``rows``, which are samples of their label's law, to (ε, δ), and attack.

    Shares of rows named are averages over ``repeats`` ways to share out the rows; the rest is of the last one.
    """
    rows, names = np.asarray(rows, dtype=np.float64), np.asarray(names).astype(str)
    before, after = [], []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        first = _share(names, 0.5, rng)
        hider = _fitted(shoal.LabelHider(epsilon, delta, seed=seed, accept="doubtful-law"), rows[first], names[first])
        true, own = rows[~first], names[~first]
        released = np.asarray(hider.transform(true, own))
        balanced = _balanced(own, rng)
        training = balanced[_share(own[balanced], 2 / 3, rng)]
        test = np.setdiff1d(balanced, training)
        before.append(_named(true[training], own[training], true[test], own[test]))
        after.append(_named(released[training], own[training], released[test], own[test]))
    return _found(hider, true, released, own, before, after, len(test), len(hider.laws_.labels))


def constants_study(
    others: Any, other_names: Any, rows: Any, names: Any, *, crowd: int, epsilon: float = 1.0, delta: float = 1e-5
) -> Study:
    """Hide whose each of ``rows`` is, one per label, in crowds, to (ε, δ), and attack.

    Before, attackers have learned from ``others``, rows of the same labels; after, from twenty releases of this table
    with its labels, and are tested on as many new ones.
    """
    rows, names = np.asarray(rows, dtype=np.float64), np.asarray(names).astype(str)
    hider = _fitted(shoal.LabelHider(epsilon, delta, crowd), rows, names)
    releases = []
    for seed in range(2 * RELEASES):
        releases.append(np.asarray(hider.set_params(seed=seed).transform(rows, names)))
    half = [np.concatenate(part) for part in (releases[:RELEASES], releases[RELEASES:])]
    own = np.tile(names, RELEASES)
    before = _named(others, np.asarray(other_names).astype(str), rows, names)
    after = _named(half[0], own, half[1], own)
    smallest = min(map(len, hider.mechanism_.graph.groups))
    return _found(hider, rows, releases[0], names, [before], [after], len(names), smallest)


def _fitted(hider: shoal.LabelHider, rows: Any, names: Any) -> shoal.LabelHider:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", shoal.LawWarning)  # checks_ and guard_ are reported
        return hider.fit(rows, names)


def _named(rows: Any, names: Any, test_rows: Any, test_names: Any) -> dict[str, float]:
    """Each attacker's share of test rows named rightly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classifiers that find few rows of a label say so
        return {
            name: float(attacker.fit(rows, names).score(test_rows, test_names))
            for name, attacker in attackers().items()
        }


def _found(
    hider: Any, true: Any, released: Any, own: Any, before: Any, after: Any, trials: int, hidden_among: int
) -> Study:
    means = [{name: float(np.mean([one[name] for one in shares])) for name in shares[0]} for shares in (before, after)]
    right = round(max(means[1].values()) * trials)
    growth = math.exp(hider.epsilon)
    return Study(
        labels=hider.laws_.labels,
        rows=true,
        released=released,
        names=own,
        hider=hider,
        before=means[0],
        after=means[1],
        after_lower=float(clopper_pearson_lower(right, trials, (1 - CONFIDENCE) / len(means[1]))),
        promise=growth / (growth + hidden_among - 1) + hider.delta,
        error=np.sqrt(((released - true) ** 2).mean(axis=0) / true.var(axis=0)),
    )


def _share(names: Any, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(m,) this share of each label's rows."""
    chosen = np.zeros(len(names), dtype=np.bool_)
    for name in np.unique(names):
        own = rng.permutation(np.flatnonzero(names == name))
        chosen[own[: round(share * len(own))]] = True
    return chosen


def _balanced(names: Any, rng: np.random.Generator) -> NDArray[np.intp]:
    """Places of as many rows of every label."""
    found, counts = np.unique(names, return_counts=True)
    chosen = [rng.permutation(np.flatnonzero(names == name))[: counts.min()] for name in found]
    return np.sort(np.concatenate(chosen))


def picture(found: Study, path: Path, title: str, show_rows: bool = True) -> None:
    """Before, after, price and attack, side by side; without rows where they are of real homes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = 4 if show_rows else 2
    figure, axes = plt.subplots(1, panels, figsize=(3.6 * panels, 3.6), constrained_layout=True)
    if show_rows:
        colors = plt.get_cmap("tab10" if len(found.labels) <= 10 else "turbo")(np.linspace(0, 1, len(found.labels)))
        alone = len(found.rows) == len(found.labels)
        plane = PCA(2) if alone else LinearDiscriminantAnalysis(n_components=2)
        plane.fit(found.rows, found.names)
        views = [plane.transform(values) for values in (found.rows, found.released)]
        direction = "component" if alone else "discriminant"
        for axis, view, name in zip(axes, views, ("before", "after"), strict=False):
            for color, label in zip(colors, found.labels, strict=True):
                own = found.names == label
                axis.scatter(view[own, 0], view[own, 1], s=30 if alone else 8, color=color, linewidths=0)
            axis.set(title=f"{name}: rows, colored by label", xlim=_limits(views, 0), ylim=_limits(views, 1))
            axis.set(xlabel=f"first {direction}", ylabel=f"second {direction}" if name == "before" else "")
    price, attack = axes[-2:]
    price.bar(np.arange(len(found.error)) + 1, found.error, color="0.5")
    price.set_xticks(np.arange(len(found.error)) + 1)
    price.set(title="price: error of released rows", xlabel="column", ylabel="deviations of the column", ylim=(0, None))
    places = np.arange(len(found.before))
    attack.bar(places - 0.2, list(found.before.values()), 0.4, label="before", color="0.7")
    attack.bar(places + 0.2, list(found.after.values()), 0.4, label="after", color="C0")
    attack.axhline(found.promise, color="C3", label="promised at most")
    attack.axhline(1 / len(found.labels), color="k", linestyle=":", label="chance")
    attack.set(title="attack: rows named rightly", ylim=(0, 1.35), yticks=np.linspace(0, 1, 6))
    attack.set_xticks(places, list(found.before))
    attack.legend(loc="upper right", ncols=2, fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _limits(views: list[NDArray[np.float64]], axis: int) -> tuple[float, float]:
    values = np.concatenate([view[:, axis] for view in views])
    low, high = np.quantile(values, [0.002, 0.998])
    return float(low - 0.1 * (high - low)), float(high + 0.1 * (high - low))
