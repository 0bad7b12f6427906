"""Run every benchmark module, or those named: ``python -m benchmarks [name ...]``."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import benchmarks


def main() -> int:
    names = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))
    wanted = sys.argv[1:] or names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(names)}", file=sys.stderr)
        return 2
    for name in wanted:
        print(import_module(f"benchmarks.{name}").section(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
