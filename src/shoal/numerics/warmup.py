"""Compiling on purpose: which kernels there are room by room, and who hears that some are being compiled.

A kernel is compiled when it is first called on a machine, and kept. Rooms with many kernels have a function
``call_every_kernel``. What is compiled without :func:`compile_kernels` is announced once in a process: to the last of
:func:`announce_compilation_to`, or with one line on standard error where that is a terminal. Numba itself reports each
compilation, so none is overlooked.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

#: Rooms with kernels, in the order in which they are compiled: the module with ``call_every_kernel``, and the pattern
#: of a file that is in the cache once it has been called.
ROOMS = {
    "arma": ("fit", "likelihood.profile_likelihood*.nbi"),
    "crowds": ("formation", "formation._reform_neighbors*.nbi"),
    "accounting": ("renyi", "spectrum._fill_spectra_in_doubles*.nbi"),
    "designs": ("design", "paper.*.nbi"),
}
WORDS = "compiling, once on this machine, in a minute or two"

Tell = Callable[[str], object]
_listeners: list[Tell] = []
_announced = False


def compile_kernels(tell: Tell | None = None, *, rooms: Iterable[str] = ROOMS) -> bool:
    """Compile the kernels of these rooms that are not compiled yet, and say so before; whether any were.

    Nothing depends on it: what is not compiled here is compiled where it is needed, and kept. False too where there is
    no folder to keep them in.
    """
    global _announced
    from shoal.numerics import compilation

    folder = compilation.FOLDER
    missing = [] if folder is None else [room for room in rooms if not any(folder.rglob(ROOMS[room][1]))]
    if missing:
        _announced = True
        if tell is not None:
            tell(WORDS)
        for room in missing:
            import_module(f"shoal.{room}.{ROOMS[room][0]}").call_every_kernel()
    return bool(missing)


@contextlib.contextmanager
def announce_compilation_to(tell: Tell) -> Iterator[None]:
    """Inside the block, announce a compilation to ``tell``, once in a process."""
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


def announce_compilation() -> None:
    """Say that a kernel is about to be compiled, unless that was said."""
    global _announced
    if not _announced:
        _announced = True
        (_listeners[-1] if _listeners else _print_on_terminal)(WORDS)


def _print_on_terminal(words: str) -> None:
    """Print these words on standard error, if that is a terminal and this the main process."""
    if sys.stderr is not None and sys.stderr.isatty() and multiprocessing.parent_process() is None:
        print(f"shoal: {words}", file=sys.stderr, flush=True)
