"""The very first run on a machine: kernels are compiled before they are needed, and progress says so.

Kernels are compiled on first use and kept (``compiled``): that is most of what the very first run takes. Nothing
depends on it: what is not there in time is compiled where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable

#: Called with (stage, what is happening, done, total).
Tell = Callable[[str, str, float, int], None]


def head_start(tell: Tell, *, accounting: bool = True) -> None:
    """On the very first run, say so and compile.

    Means of crowds need no ``accounting``: its kernels are the larger part, and are left to the first run with an ε.
    """
    from shoal.numerics import compiled

    folder = compiled.FOLDER
    last = "spectrum._fast_block*.nbi" if accounting else "crowds._sweep*.nbi"
    if folder is None or any(folder.rglob(last)):
        return
    first = FIRST if accounting else {name: FIRST[name] for name in ("models", "crowds")}
    for number, (name, work) in enumerate(first.items()):
        tell("compile", f"compiling, once on this machine, in a minute or two: {name}", number, len(first))
        work()
    tell("compile", "compiling, once on this machine", len(first), len(first))


def compile_models() -> None:
    """The kernels behind fits, their checks and forecasts, from households that do not exist."""
    from shoal.sources.meters.forecast import forecast
    from shoal.sources.meters.simulate import simulate_meters

    forecast(simulate_meters(2, 3, step_minutes=30), (2, 1), 2, 2, "day")


def compile_crowds() -> None:
    """The kernels that form crowds."""
    import numpy as np

    from shoal.laws.crowds import crowds

    crowds(np.arange(12.0).reshape(6, 2) ** 2, 2)


def compile_accounting() -> None:
    """The kernels behind the spectra of laws, and behind what is made of spectra: δ(ε), Rényi divergences."""
    import numpy as np

    from shoal.accounting.curve import privacy_curve
    from shoal.accounting.renyi import renyi_curve
    from shoal.accounting.spectrum import edge_spectra
    from shoal.laws.classes import GaussianClasses
    from shoal.laws.graph import NeighborGraph

    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    for precise in (False, True):
        edge_spectra(laws, np.array([[0, 1]]), precise=precise).reversed()
    graph = NeighborGraph.complete(laws.labels)
    for scope in ("answer", "table"):
        privacy_curve(laws, graph, [0.5, 1.0], scope=scope)
        renyi_curve(laws, graph, [2.0], scope=scope)


def compile_designs() -> None:
    """The kernels of designs that search, of the paper's method, of trade-offs and of an attacker who holds a table."""
    import numpy as np

    from shoal.accounting.assignments import likeliest, marginals
    from shoal.accounting.tradeoff import tpr_at_fpr
    from shoal.designs.design import design
    from shoal.laws.classes import GaussianClasses
    from shoal.laws.graph import NeighborGraph

    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    graph = NeighborGraph.complete(laws.labels)
    for method in ("paper", "transport"):
        tpr_at_fpr(design(laws, graph, method, 1.0, 0.1, iterations=1).output, graph, 0.01)
    table = np.zeros((1, 2, 2))
    marginals(table, likeliest(table))


#: What runs need -> what has it compiled.
FIRST: dict[str, Callable[[], None]] = {
    "models": compile_models,
    "crowds": compile_crowds,
    "accounting": compile_accounting,
}


if __name__ == "__main__":  # all of it, before a release, an image or the tests
    for work in (*FIRST.values(), compile_designs):
        work()
