"""Rows that are not Gaussian: what is refused, and what is left to release. ``python -m benchmarks doubtful``.

Digits, wine and breast cancer (scikit-learn) and voices (JapaneseVowels, where aeon is installed), standardized and
reduced to five principal components. Half of the rows are fitted, the other half is released and attacked: a classifier
learns from two thirds of it, with true labels, and is tested on the rest. The best of a linear, a quadratic and a
nearest-neighbor one counts; means of three ways to share out the rows. Ways to release:

- *as if Gaussian*: ``LabelHider`` at (1, 1e-5), with ``accept="doubtful-law"`` where it refuses; *promised* is what no
  attacker exceeds if the laws are true, *plausible δ* what δ(1) becomes over laws that the rows leave plausible;
- *any law in bounds*: components cut to three deviations on either side, which stands for declared bounds, and Gaussian
  noise for the diagonal of that box: (1, 1e-5) between any two rows, whatever their law; *noise* is in deviations;
- *averages*: crowds of ten rows by likeness, each row replaced by the mean of its crowd: k-anonymity of the row, and
  nothing about its label.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import shoal
from shoal.crowds.formation import crowd_means, least_spread_crowds

ENTRIES, WIDE, REPEATS, EPSILON, DELTA = 5, 3.0, 3, 1.0, 1e-5
Array = Any


def tables() -> dict[str, tuple[Array, Array]]:
    """Rows and labels by name."""
    found = {}
    for name in ("digits", "wine", "breast_cancer"):
        data: Any = getattr(datasets, f"load_{name}")()
        found[name.replace("_", " ")] = data.data, data.target
    try:
        from aeon.datasets import load_japanese_vowels
    except ImportError:
        print("(voices: left out, aeon is not installed)")
        return found
    series, speakers = load_japanese_vowels()
    rows = np.array([one[:, : one.shape[1] // 3].mean(axis=1) for one in series])
    return {**found, "voices": (rows, np.asarray(speakers))}


def share_named(rows: Array, names: Array, rng: np.random.Generator) -> float:
    """The best classifier's share of rows that it names rightly."""
    order = rng.permutation(len(rows))
    training, test = np.split(order, [2 * len(rows) // 3])
    attackers = (
        LinearDiscriminantAnalysis(),
        QuadraticDiscriminantAnalysis(reg_param=0.1),
        make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
    )
    return max(float(one.fit(rows[training], names[training]).score(rows[test], names[test])) for one in attackers)


def study(rows: Array, names: Array, seed: int) -> dict[str, float]:
    """One way to share out the rows: shares named, and the noise for any law."""
    rng = np.random.default_rng(seed)
    reduced = make_pipeline(StandardScaler(), PCA(ENTRIES, whiten=True)).fit_transform(rows)
    first = rng.permutation(len(rows)) % 2 == 0
    fitted, own = names[first].astype(str), names[~first].astype(str)
    hider, refused = shoal.LabelHider(EPSILON, DELTA, seed=seed), 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            hider.fit(reduced[first], fitted)
        except shoal.UnreachableError:
            refused = 1.0
            hider.set_params(accept="doubtful-law").fit(reduced[first], fitted)
    true = reduced[~first]
    odds = shoal.identification_risk(hider.mechanism_.output, hider.mechanism_.graph, scope="table")
    noise = float(shoal.analytic_sigma(2 * WIDE * np.sqrt(ENTRIES), EPSILON, DELTA))
    member = least_spread_crowds(true, 10)
    return {
        "refused": refused,
        "rejected": float((~hider.checks_.gaussian).mean()),
        "guess": float(max(np.mean(own == name) for name in set(own))),
        "before": share_named(true, own, rng),
        "plausible δ": float(hider.guard_.delta_at_confidence),
        "promised": float(odds.success_upper),
        "as if Gaussian": share_named(np.asarray(hider.transform(true, own)), own, rng),
        "any law in bounds": share_named(
            np.clip(true, -WIDE, WIDE) + noise * rng.standard_normal(true.shape), own, rng
        ),
        "noise": noise,
        "averages": share_named(crowd_means(true, member)[member], own, rng),
    }


def main() -> None:
    print("## Rows that are not Gaussian\n")
    shown = ["refused", "rejected", "guess", "before", "plausible δ", "promised", "as if Gaussian"]
    shown += ["any law in bounds", "noise", "averages"]
    print(f"| rows | labels | {' | '.join(shown)} |\n{'| --- ' * (len(shown) + 2)}|")
    for name, (rows, names) in tables().items():
        runs = [study(rows, np.asarray(names), seed) for seed in range(REPEATS)]
        cells = [f"{np.mean([run[column] for run in runs]):.3g}" for column in shown]
        print(f"| {name} | {len(set(names))} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
