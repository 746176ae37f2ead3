"""A float32 product whose matrix is kept in float16, to the bit.

Checkpoints come in 16 bits, and a product with few rows takes as long as its matrix takes to read.
FBGEMM, which torch brings for x86 processors, reads float16, widens it in registers and computes in
float32: half the bytes, the same weights. bfloat16 has fewer digits than float16 but a wider range:
times a power of two, which rounds nothing, a matrix of it fits nearly always.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from fastinfer.models.heap import trim_heap

# The largest entry is brought just below this power of two; float16 ends at 65,504.
TOP_EXPONENT = 15
# Rows of a matrix that are compared at once: checking it takes no second copy of it.
PART = 1024


@functools.cache
def has_kernel() -> bool:
    """Whether torch has the product on this processor."""
    try:
        one = torch.eye(8, dtype=torch.float32, device="cpu")
        return torch.equal(half_product(one, None, 1.0)(one), one)
    except (RuntimeError, AttributeError):  # an engine without it; a build without it
        return False


def half_scale(weight: Tensor) -> float | None:
    """The power of two by which `weight` [out, in] over it is float16 without rounding.

    None where no power of two does that.
    """
    low, high = torch.aminmax(weight)  # no copy
    largest = torch.maximum(-low, high).item()
    if not 0 < largest < math.inf:
        return None
    scale = math.ldexp(1.0, max(math.frexp(largest)[1] - TOP_EXPONENT, -64))
    parts = (part.float() for part in torch.split(weight, PART))
    fits = all(torch.equal((part / scale).half().float() * scale, part) for part in parts)
    return scale if fits else None


def half_product(weight: Tensor, bias: Tensor | None, scale: float) -> Callable[[Tensor], Tensor]:
    """`rows @ (weight / scale).T + bias` in float32, for a scale from `half_scale`."""
    scaled = weight.to(torch.float32, copy=True).div_(scale)  # packing may change what it is given
    packed = torch.ops.quantized.linear_prepack_fp16(scaled, bias)
    del scaled
    trim_heap()
    product = torch.ops.quantized.linear_dynamic_fp16.default
    return lambda rows: product(rows, packed)
