"""Key norms that come out alike, whatever block the keys were computed in."""

from __future__ import annotations

import torch
from torch import Tensor

# Rounding noise of a forward in float32 is some 1e-7 of a norm; this step is 2.4e-4 of it.
BITS = 12


def key_norms(
    keys: Tensor,  # [kv_heads, length, head_dim]
) -> Tensor:  # [kv_heads, length] float32
    """L2 norms, rounded to `BITS` binary digits.

    A rotation leaves norms alone, so in the first layer every occurrence of a token has the same
    one, up to rounding. Unrounded, which of them is the larger would hang on whether a token was
    read alone or in a block, and speculation would keep other entries than single steps do.
    """
    norms: Tensor = torch.linalg.vector_norm(keys.float(), dim=-1)
    mantissa, exponent = torch.frexp(norms)
    return torch.ldexp((mantissa * 2**BITS).round() / 2**BITS, exponent)
