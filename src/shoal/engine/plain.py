"""Results as JSON that every reader accepts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def as_json(value: Any, indent: int | None = 1) -> str:
    """JSON text; infinity and NaN become null."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None
