"""Compiled kernels are cached per state of the sources.

Numba notices a change in the file of a cached function but not in the files of the functions it calls, so a cache that
outlives an edit could let the tests pass on yesterday's arithmetic.
"""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).parent.parent
_digest = hashlib.sha256()
for _source in sorted((ROOT / "src" / "shoal").rglob("*.py")):
    _digest.update(_source.read_bytes())
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".pytest_cache" / "numba" / _digest.hexdigest()[:16])
