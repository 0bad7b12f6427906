"""A second process that compiles what designs need while the first one reads meters and fits models.

Kernels are compiled once and kept (:mod:`shoal.compiled`), one at a time in a process: that is most of what the very
first run takes. Spectra of edges share no kernel with the fits before them nor with the tails after them, so another
process can have them ready. Nothing depends on it: what is not there in time is compiled where it is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shoal.threads import ONE_THREAD, n_threads

CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from shoal.runs.head_start import compile_spectra; compile_spectra()"
)


@contextmanager
def head_start() -> Iterator[None]:
    """Compile meanwhile, if there is a core to spare, somewhere to keep kernels, and none of them yet."""
    from shoal import compiled

    folder = compiled.FOLDER
    if folder is None or n_threads() < 2 or any(folder.rglob("spectrum._fast_block*.nbi")):
        yield
        return
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(
        [sys.executable, "-c", CODE, json.dumps(sys.path)],
        env={**os.environ, **ONE_THREAD}, stdin=quiet, stdout=quiet, stderr=quiet,
    )  # fmt: skip
    try:
        yield
    finally:
        child.kill()
        child.wait()


def compile_spectra() -> None:
    """The kernels behind the spectra of a small family of laws, which are those of any."""
    import numpy as np

    from shoal.accounting.spectrum import edge_spectra
    from shoal.classes import GaussianClasses

    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    for precise in (False, True):
        edge_spectra(laws, np.array([[0, 1]]), precise=precise).reversed()
