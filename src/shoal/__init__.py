"""shoal: differential privacy for class labels.

Public names are imported on first use, so that ``import shoal`` stays light: the compiled kernels load only
when a number is asked for. They are listed once, in ``__init__.pyi``, where type checkers see them; what else there is
is imported from its room. ``pip install shoal`` is the library; names of the product, which ``pip install
'shoal[run]'`` adds, say so where its packages are missing.
"""

import pathlib
import re
from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

_LISTED = pathlib.Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
#: Public name -> the module that defines it.
_HOME = {name: home for home, name in re.findall(r"^    from (\S+) import (\w+) as", _LISTED, re.MULTILINE)}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        value = _public_names()
    elif name == "testing":
        value = import_module("shoal.testing")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    globals()[name] = value
    return value


def _public_names() -> list[str]:
    """Return the public names that can be used with the packages that are installed."""
    try:
        import_module("shoal.product")  # light: it only looks for its packages
        return sorted(_HOME)
    except ModuleNotFoundError:
        return sorted(name for name, home in _HOME.items() if not home.startswith("shoal.product."))


def __dir__() -> list[str]:
    return ["__version__", *_public_names()]
