"""Freed memory that glibc keeps.

Packing a matrix needs a copy of it for a moment. Where that is freed below memory that stays, the
allocator keeps its pages: a loaded model then takes twice its weights.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable


def trim_heap() -> None:
    """Give the system back what is free. Without glibc nothing happens."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    try:
        function = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # another C library
        return None
    function.argtypes = (ctypes.c_size_t,)
    function.restype = ctypes.c_int
    return function
