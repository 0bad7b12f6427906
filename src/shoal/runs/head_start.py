"""What the very first run compiles before it begins, and says so; a second process has its share of it.

Kernels are compiled once and kept (``compiled``), one at a time in a process: that is most of what the very
first run takes. Spectra of edges share no kernel with the fits before them nor with the tails after them, so another
process can have them ready. Nothing depends on it: what is not there in time is compiled where it is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shoal.numerics.threads import ONE_THREAD, n_threads

#: Called with (stage, what is happening, done, total).
Tell = Callable[[str, str, float, int], None]
CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from shoal.runs.head_start import compile_spectra; compile_spectra()"
)


@contextmanager
def head_start(tell: Tell | None = None, *, accounting: bool = True) -> Iterator[None]:
    """On the very first run, say so and compile; with a core to spare, spectra in a second process meanwhile.

    Means of crowds need no ``accounting``: its kernels are the larger part, and are left to the first run with an ε.
    """
    from shoal.numerics import compiled

    folder = compiled.FOLDER
    last = "spectrum._fast_block*.nbi" if accounting else "crowds._sweep*.nbi"
    if folder is None or any(folder.rglob(last)):
        yield
        return
    quiet = subprocess.DEVNULL
    child = None
    first = FIRST if accounting else {name: FIRST[name] for name in ("models", "crowds")}
    if accounting and n_threads() > 1:
        child = subprocess.Popen(
            [sys.executable, "-c", CODE, json.dumps(sys.path)],
            env={**os.environ, **ONE_THREAD}, stdin=quiet, stdout=quiet, stderr=quiet,
        )  # fmt: skip
    try:
        for number, (name, work) in enumerate(first.items()):
            if tell is not None:
                tell("compile", f"compiling, once on this machine, in a minute or two: {name}", number, len(first))
            work()
        if tell is not None:
            tell("compile", "compiling, once on this machine", len(first), len(first))
        yield
    finally:
        if child is not None:
            child.kill()
            child.wait()


def compile_models() -> None:
    """The kernels behind fits, their checks and forecasts, from households that do not exist."""
    from shoal.sources.meters.forecast import forecast
    from shoal.sources.meters.simulate import simulate_meters

    forecast(simulate_meters(2, 3, step_minutes=30), (2, 1), 2, 2, "day")


def compile_crowds() -> None:
    """Those that form crowds."""
    import numpy as np

    from shoal.laws.crowds import crowds

    crowds(np.arange(12.0).reshape(6, 2) ** 2, 2)


def compile_spectra() -> None:
    """The kernels behind the spectra of a small family of laws, which are those of any."""
    import numpy as np

    from shoal.accounting.spectrum import edge_spectra
    from shoal.laws.classes import GaussianClasses

    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    for precise in (False, True):
        edge_spectra(laws, np.array([[0, 1]]), precise=precise).reversed()


def compile_accounting() -> None:
    """Those, and what is made of spectra: δ(ε) of an answer and of a table, Rényi divergences."""
    from shoal.accounting.curve import privacy_curve
    from shoal.accounting.renyi import renyi_curve
    from shoal.laws.classes import GaussianClasses
    from shoal.laws.graph import NeighborGraph

    compile_spectra()
    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    graph = NeighborGraph.complete(laws.labels)
    for scope in ("answer", "table"):
        privacy_curve(laws, graph, [0.5, 1.0], scope=scope)
        renyi_curve(laws, graph, [2.0], scope=scope)


def compile_designs() -> None:
    """Those of designs that search, of the paper's method, of trade-offs and of an attacker who holds a table."""
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


#: What every run needs -> what has it compiled. Spectra come last: the second process has them by then, or nearly.
FIRST: dict[str, Callable[[], None]] = {
    "models": compile_models,
    "crowds": compile_crowds,
    "accounting": compile_accounting,
}


if __name__ == "__main__":  # all of it, before a release, an image or the tests
    for work in (*FIRST.values(), compile_designs):
        work()
