"""The paper's four-class example: how visible is the label, and what does a budget buy?

Writes out/demo.png and prints a table. Run it with ``make demo``.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import shoal
from shoal.pictures import draw_curves, draw_laws
from shoal.privacy.curve import round_up
from shoal.synthetic import four_classes

TOTAL = 1.0
EPSILON = 1.0
METHODS = {
    "none": "no noise",
    "white": "white noise",
    "paper": "the paper's method",
    "transport": "transport (shoal)",
}


def main() -> None:
    classes = four_classes()
    graph = shoal.NeighborGraph.complete(classes.labels)
    rho = TOTAL / classes.n_dims
    grid = np.linspace(0.0, 3.0, 61)
    print(
        f"Four classes in the plane; nobody may tell which one an answer is about. ε = {EPSILON:g}, budget ρ = {rho:g}."
    )
    print("(The first run compiles the kernels, once; that takes about a minute.)", file=sys.stderr)
    print()
    print(f"{'method':<22}{'worst δ (dp)':>14}{'one-sided PDP':>16}{'attacker is right':>20}   hardest to hide")
    mechanisms, curves = {}, {}
    for method, title in METHODS.items():
        mechanism = shoal.design(classes, graph, method=method, epsilon=EPSILON, rho=rho)
        mechanisms[title] = mechanism
        curves[title] = mechanism.curve(grid)
        certificate = mechanism.certificate
        pdp = mechanism.curve(EPSILON, notion="pdp").delta_upper
        risk = shoal.identification_risk(mechanism)
        a, b = certificate.worst_edge
        print(
            f"{title:<22}{round_up(certificate.delta_upper):>14.4f}{round_up(pdp):>16.4f}"
            f"{'≤ ' + format(100 * risk.success_upper, '.1f') + ' %':>20}   {a} from {b}"
        )
    bound = math.floor(1000 * mechanisms["transport (shoal)"].lower_bound) / 1000
    print()
    print(
        f"Guessing blindly is right 25 % of the time. No Gaussian mechanism with this budget gets δ below {bound:.3f}."
    )
    perfect = shoal.perfect_rho(classes, graph)
    print(f"From ρ = {round_up(perfect):.4g} on, δ = 0 is affordable: all four laws can be made one.")
    path = Path("out/demo.png")
    path.parent.mkdir(exist_ok=True)
    picture(mechanisms, curves).savefig(path, dpi=130)
    print(f"Picture: {path}")


def picture(mechanisms: dict[str, shoal.Mechanism], curves: dict[str, shoal.PrivacyCurve]) -> plt.Figure:
    figure, axes = plt.subplots(1, 4, figsize=(15, 4), layout="constrained")
    for ax, title in zip(axes, ("no noise", "white noise", "transport (shoal)"), strict=False):
        draw_laws(ax, mechanisms[title].output)
        ax.set_title(title)
    axes[0].legend(title="class", loc="upper left", fontsize=8)
    draw_curves(axes[3], curves)
    axes[3].axvline(EPSILON, color="gray", linewidth=0.8, linestyle=":")
    axes[3].legend(fontsize=8)
    axes[3].set_title("privacy at equal error")
    return figure


if __name__ == "__main__":
    main()
