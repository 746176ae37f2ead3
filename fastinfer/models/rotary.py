"""Rotary position embedding (RoFormer, arXiv:2104.09864) from tables made once per model.

Pairs are (i, i + dim / 2), as in GPT-NeoX and the transformers checkpoints. The frequency scalings
are those of the covered families: linear, Llama 3's, and YaRN (arXiv:2309.00071). `dynamic` and
`longrope` are left out on purpose: their frequencies depend on the length reached, so a rollback
would not be exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

ROPE_TYPES = ("default", "linear", "llama3", "yarn")

# The tables grow by this many positions.
CHUNK = 1024


@dataclass(frozen=True, kw_only=True)
class RotarySpec:
    """Which values of a head are rotated (the first `dim`) and how fast."""

    dim: int
    theta: float
    kind: str = "default"
    scaling: Mapping[str, float]  # the config's numbers under transformers' names


def inverse_frequencies(spec: RotarySpec) -> tuple[Tensor, float]:
    """Radians per position, [dim / 2] float32, and the factor on cosine and sine (YaRN's)."""
    exponents = torch.arange(0, spec.dim, 2, dtype=torch.float32) / spec.dim
    frequencies = 1.0 / spec.theta**exponents
    if spec.kind == "default":
        return frequencies, 1.0
    if spec.kind == "linear":
        return frequencies / spec.scaling["factor"], 1.0
    if spec.kind == "llama3":
        return _llama3(frequencies, spec.scaling), 1.0
    assert spec.kind == "yarn", spec.kind
    return _yarn(frequencies, spec)


def _llama3(frequencies: Tensor, scaling: Mapping[str, float]) -> Tensor:
    """Long waves are slowed by `factor`, short ones kept, those between blended."""
    factor, trained = scaling["factor"], scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    waves_in_context = trained * frequencies / (2 * math.pi)
    kept = ((waves_in_context - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (kept + (1 - kept) / factor)


def _yarn(frequencies: Tensor, spec: RotarySpec) -> tuple[Tensor, float]:
    """Interpolates by wavelength and sharpens attention by the mscale factor."""
    scaling = spec.scaling
    factor = scaling["factor"]
    trained = scaling["original_max_position_embeddings"]

    def dimension(rotations: float) -> float:
        """The dimension that turns `rotations` times over the trained context."""
        turns = math.log(trained / (rotations * 2 * math.pi))
        return spec.dim * turns / (2 * math.log(spec.theta))

    low = dimension(scaling.get("beta_fast") or 32)
    high = dimension(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, spec.dim - 1)
    span = high - low if high != low else 0.001  # no division by zero, as in transformers
    ramp = (torch.arange(spec.dim // 2, dtype=torch.float32) - low) / span
    kept = 1 - ramp.clamp(0.0, 1.0)
    return frequencies * (kept + (1 - kept) / factor), _yarn_attention(scaling)


def _yarn_attention(scaling: Mapping[str, float]) -> float:
    def mscale(weight: float) -> float:
        factor = scaling["factor"]
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    given = scaling.get("attention_factor")
    if given is not None:
        return given
    one, every = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return mscale(one) / mscale(every) if one and every else mscale(1.0)


class RotaryTable:
    """Cosines and signed sines for every position so far asked for."""

    def __init__(self, spec: RotarySpec, device: torch.device, dtype: torch.dtype) -> None:
        self.dim = spec.dim
        self.dtype = dtype
        self._frequencies, self._scale = inverse_frequencies(spec)
        self._device = device
        self._table = self._make(CHUNK)

    def turned(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Heads [..., n, head_dim] turned by positions (whole numbers, back where negative).

        They broadcast to [..., n]. A new tensor in float32. Unlike `rotation` it changes no length,
        so turning back undoes it (YaRN's factor stays where it is).
        """
        return self._turned(heads, self._angles(positions))

    def moved(self, heads: Tensor, places: Tensor, new_places: Tensor) -> Tensor:
        """Heads that stand at `places`, turned on to `new_places`; as `turned` otherwise.

        By differences of the angles that the table is made of: many moves sum to the one from first
        to last, so only the roundings of the products themselves add up.
        """
        return self._turned(heads, self._angles(new_places) - self._angles(places))

    def _angles(self, positions: Tensor) -> Tensor:
        """[..., n, dim / 2] float64, equal to the table's."""
        frequencies = self._frequencies.to(positions.device)
        return (positions[..., None].float() * frequencies).double()

    def _turned(self, heads: Tensor, angles: Tensor) -> Tensor:
        cos, sin = angles.cos().float(), angles.sin().float()
        half = self.dim // 2
        heads = heads.float()
        first, second, rest = heads[..., :half], heads[..., half : self.dim], heads[..., self.dim :]
        turned = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat((*turned, rest.expand(*turned[0].shape[:-1], -1)), -1)

    def _make(self, length: int) -> Tensor:
        """[2, length, dim]: cosine; sine, negated in the first half."""
        angles = torch.arange(length, dtype=torch.float32)[:, None] * self._frequencies
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        table = torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)))
        return table.to(device=self._device, dtype=self.dtype)

    def reserve(self, length: int) -> Tensor:
        """Cover so many positions. Returns the table, which is another one after it has grown."""
        if length > self._table.shape[1]:
            # One assignment: a second request may read the old table meanwhile.
            self._table = self._make(-(-length // CHUNK) * CHUNK)
        return self._table

    def rotation(self, start: int, count: int) -> Callable[[Tensor], None]:
        """Turns heads [..., count, head_dim] in place: row i by the angle of position start + i."""
        return self._turn(self.reserve(start + count).narrow(1, start, count))

    def rotation_at(self, positions: Tensor) -> Callable[[Tensor], None]:
        """The same for positions [count] that only the device knows; `reserve` must cover them."""
        return self._turn(self._table.index_select(1, positions))

    def _turn(self, rows: Tensor) -> Callable[[Tensor], None]:
        cos, sin = rows.unbind(0)
        dim, half = self.dim, self.dim // 2

        def rotate_(heads: Tensor) -> None:
            if heads.shape[-1] > dim:  # the rest of a head has no position
                heads = heads.narrow(-1, 0, dim)
            swapped = heads.roll(half, -1)
            heads.mul_(cos).addcmul_(swapped, sin)

        return rotate_
