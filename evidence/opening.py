"""The picture that opens the README: what the best attacker achieves beside what it costs, from the stored study."""

from __future__ import annotations

from pathlib import Path

from evidence import storage
from evidence.page import stored_as
from evidence.reidentification import INFORMED, AttackStudy

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "opening.png"
#: What left, as the study calls it -> words in the picture.
SHOWN = {
    "raw readings": "raw readings",
    "unprotected forecasts": "forecasts, unprotected",
    "crowds": "crowds of ten",
    "white noise": "white noise",
    "the paper's method": "the paper's method",
}
NAMED, OFF, GUESS = "#b3261e", "#0072b2", "#5f6b7a"


def rows() -> list[tuple[str, float, float]]:
    """(what left, share of homes that the best attacker names, added error in kW), from the stored study.

    Inside a crowd the attacker knows every forecast and is told the crowd; elsewhere they pick among all homes.
    """
    study: AttackStudy = stored_as(AttackStudy, storage.stored("reidentify"))
    listed = []
    for what, words in SHOWN.items():
        attacks = [finding for finding in study.findings if finding.what == what]
        told = [finding.inside.top_1 for finding in attacks if finding.attacker == INFORMED and finding.inside]
        found = [finding.everywhere.top_1 for finding in attacks if finding.attacker != INFORMED and finding.everywhere]
        listed.append((words, max(told or found), attacks[0].rmse))
    return listed


def draw(path: Path = PICTURE) -> Path:
    """Two panels side by side: the share that is named, and the error that was added."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names, named, off = zip(*rows(), strict=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), sharey=True, layout="constrained")
    places = range(len(names))
    left.barh(places, [100 * share for share in named], color=NAMED, height=0.6)
    left.axvline(10, color=GUESS, linestyle="--", linewidth=1)
    left.text(24, len(names) - 1.0, "dashed: a guess among ten", color=GUESS, fontsize=8, va="center")
    for place, share in zip(places, named, strict=True):
        plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # over the dashed line
        left.text(100 * share + 1, place, f"{100 * share:.0f} %", va="center", fontsize=9, bbox=plate)
    left.set(xlim=(0, 105), xlabel="homes that the best attacker names, %", yticks=list(places), yticklabels=names)
    left.invert_yaxis()
    right.barh(places, off, color=OFF, height=0.6)
    for place, error in zip(places, off, strict=True):
        words = "none" if not error else f"{error:.1f} kW" if error < 10 else f"{error:.0f} kW"
        right.text(max(error, 0.1) * 1.2, place, words, va="center", fontsize=9)
    ticks = {0.1: "0.1", 1: "1", 10: "10", 100: "100"}
    right.set(xscale="log", xlim=(0.1, 1500), xlabel="error that hiding adds, kW (root mean square)")
    right.set_xticks(list(ticks), list(ticks.values()))
    right.minorticks_off()
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


if __name__ == "__main__":
    print(draw())
