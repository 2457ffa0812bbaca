"""The cache of compiled programs: keys, entries, the store, its bounds, and what one can ask it.

``Key``, ``key_of``, ``Built``, ``Entry``, ``Store`` and ``store()`` are what the compiler uses.
"""

from __future__ import annotations

from tileops.cache.entry import Built, Entry
from tileops.cache.key import Key, key_of, texts_of
from tileops.cache.store import Store, store

__all__ = ["Built", "Entry", "Key", "Store", "key_of", "store", "texts_of"]
