"""The one way functions are compiled: cached on disk, GIL released, plain IEEE arithmetic.

No fast-math, except in a ``summing_kernel``; and a division by zero gives an infinity instead of an exception, as it
does in NumPy.

Numba's cache notices when a function's own file changes, not when a kernel that it calls from another file does, and a
stale kernel would give wrong figures. So the cache is a folder named by the digest of all files that hold kernels or
constants of kernels: beside the sources where they can be written to, else in the user's own cache, else nowhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.core import event, types

from shoal.numerics import warmup

Function = TypeVar("Function", bound=Callable[..., Any])

#: Numba's settings; it fills the module as it is imported.
config: Any = numba.config
#: The type of a constant without its value.
plain: Callable[[Any], Any] = types.unliteral

PACKAGE = Path(__file__).parents[1]
#: What the text of a file with kernels contains.
MARK = b"compilation import"
#: Files without kernels that define a constant which some kernel uses (a test looks for others).
CONSTANTS = ("accounting/curve.py", "crowds/rules.py", "numerics/compilation.py", "numerics/matrices.py")


class _CompilationListener(event.Listener):
    """Numba reports what it compiles, not what it loads from the cache: that of our kernels is announced."""

    def on_start(self, event: Any) -> None:
        """Announce the compilation that begins, if the function is one of the package."""
        if event.data["dispatcher"].py_func.__module__.startswith("shoal."):
            warmup.announce_compilation()

    def on_end(self, event: Any) -> None:
        """Do nothing: only the beginning of a compilation is announced."""


event.register("numba:compile", _CompilationListener())  # type: ignore[no-untyped-call]


def kernel(function: Function) -> Function:
    """Compile a function on its first call; later processes load the result from the cache."""
    return _compile(function)


def inline_kernel(function: Function) -> Function:
    """Compile a function of a few operations that must not cost a call: it is copied into its callers."""
    return _compile(function, inline="always")


def summing_kernel(function: Function) -> Function:
    """Compile inner products and recursions over a series: sums in any order, multiply and add in one rounding.

    What the order is depends on the machine, as it does in BLAS, never on the run; infinities and NaN are respected.
    Not for anything that a privacy figure rests on.
    """
    return _compile(function, fastmath={"reassoc", "contract"})


def _compile(function: Function, **options: Any) -> Function:
    """Return the function compiled with Numba's ``options``, cached in our folder.

    Numba asks where to cache when it decorates: only our functions go there.
    """
    before = config.CACHE_DIR
    config.CACHE_DIR = str(FOLDER)
    try:
        dispatcher = njit(cache=FOLDER is not None, nogil=True, error_model="numpy", **options)(function)
    finally:
        config.CACHE_DIR = before
    resolve = dispatcher.get_call_template

    def call_template_without_literals(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        """Numba's call template with literals as plain values, or each constant would compile the callee anew."""
        return resolve([plain(a) for a in args], {name: plain(a) for name, a in kws.items()})

    dispatcher.get_call_template = call_template_without_literals
    return cast(Function, dispatcher)


def sources_digest(package: Path = PACKAGE) -> str:
    """Return a digest of what kernels depend on: names and contents of files with kernels or their constants."""
    state = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        place, content = source.relative_to(package).as_posix(), source.read_bytes()
        if MARK in content or place in CONSTANTS:
            state.update(f"{place}:".encode() + hashlib.sha256(content).digest())
    return state.hexdigest()[:20]


def _cache_places(package: Path) -> Iterator[Path]:
    """Yield folders where kernels may be kept; never one that others can write to: a cache is code."""
    mine = Path("shoal") / hashlib.sha256(os.fsencode(package.resolve())).hexdigest()[:12]
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR) / mine
    yield package / "__pycache__"
    with contextlib.suppress(RuntimeError):  # no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / mine


def cache_folder(package: Path = PACKAGE) -> Path | None:
    """Return the folder for kernels of these sources, made if need be, or None; those of other sources beside it go."""
    name = f"kernels-{sources_digest(package)}"
    for place in _cache_places(package):
        folder = place / name
        try:
            if not folder.is_dir():
                for old in place.glob("kernels-*"):
                    shutil.rmtree(old, ignore_errors=True)
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return folder
    return None


FOLDER = cache_folder()
