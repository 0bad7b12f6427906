"""shoal: differential privacy for class labels.

Public names are imported on first use, so that ``import shoal`` stays light: the compiled kernels load only
when a number is asked for. They are listed once, in ``__init__.pyi``, where type checkers see them; what else there is
is imported from its room (``from shoal.accounting.renyi import zcdp``).
"""

import pathlib
import re
from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

_LISTED = pathlib.Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
#: Public name -> the module that defines it.
_HOME = {name: home for home, name in re.findall(r"^    from (\S+) import (\w+) as", _LISTED, re.MULTILINE)}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("shoal.testing")
    if name not in _HOME:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]
