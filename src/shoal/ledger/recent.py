"""A cache of what was used last, as far as memory allows."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by key, the least recently used dropped when their sizes add up to more than ``capacity`` bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: OrderedDict[object, tuple[Value, int]] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def get(self, key: object) -> Value | None:
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return None
            self._items.move_to_end(key)
            return item[0]

    def put(self, key: object, value: Value, size: int) -> None:
        with self._lock:
            if key in self._items:
                self._total -= self._items.pop(key)[1]
            self._items[key] = (value, size)
            self._total += size
            while self._total > self._capacity and len(self._items) > 1:
                self._total -= self._items.popitem(last=False)[1][1]
