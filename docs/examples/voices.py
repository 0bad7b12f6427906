"""Voices: who spoke is hidden, what was spoken stays. Run: python docs/examples/voices.py

JapaneseVowels (Kudo, Toyama and Shimbo 1999), from the package aeon: 640 utterances of the vowels a and e, one after
the other, by nine speakers, as series of 12 cepstral coefficients. A row is the mean of the first third of an utterance
(a) or of the last (e).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from study import Study, picture, study

HERE = Path(__file__).parent


def load() -> tuple[Any, Any, Any]:
    """Rows of a, rows of e, and the speaker of each."""
    try:
        from aeon.datasets import load_japanese_vowels
    except ImportError:
        raise SystemExit("voices.py needs the package aeon, which holds the recordings: pip install aeon") from None

    series, speakers = load_japanese_vowels()
    thirds = [(x[:, : x.shape[1] // 3].mean(axis=1), x[:, -(x.shape[1] // 3) :].mean(axis=1)) for x in series]
    return np.array([a for a, _ in thirds]), np.array([e for _, e in thirds]), np.asarray(speakers)


def example(entries: int = 12, speakers: int = 9) -> tuple[Study, Study, float, float]:
    """The study of each vowel, and how well the vowel is told from rows of both, before and after."""
    a, e, names = load()
    chosen = np.isin(names, np.unique(names)[:speakers])
    found = tuple(study(rows[chosen, :entries], names[chosen]) for rows in (a, e))
    vowels = np.repeat([0, 1], [len(one.rows) for one in found])
    shares = []
    for which in ("rows", "released"):
        values = np.concatenate([getattr(one, which) for one in found])
        odd = np.arange(len(values)) % 2 == 1
        shares.append(
            float(LinearDiscriminantAnalysis().fit(values[odd], vowels[odd]).score(values[~odd], vowels[~odd]))
        )
    return found[0], found[1], shares[0], shares[1]


if __name__ == "__main__":
    first, second, before, after = example()
    print("vowel a\n" + str(first) + "\n\nvowel e\n" + str(second))
    print(f"\nthe vowel is told in {before:.1%} of the rows before, in {after:.1%} after")
    picture(first, HERE / "voices.png", "Nine speakers, vowel a, (1, 1e-5)")
