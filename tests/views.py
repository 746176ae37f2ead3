"""Layers as a press sees them, with random entries and queries."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from fastinfer.presses import LayerView, Press

HEADS, KV_HEADS, DIM = 6, 2, 8
FREQUENCIES = torch.tensor([0.5, 0.01])  # of the first four values of a head, as in GPT-NeoX


def turn(heads: Tensor, positions: Tensor) -> Tensor:
    """A rotation of part of each head."""
    half = len(FREQUENCIES)
    angles = positions[..., None] * FREQUENCIES
    cos, sin = angles.cos(), angles.sin()
    one, two, rest = heads.split((half, half, heads.shape[-1] - 2 * half), -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin, rest), -1)


def still(heads: Tensor, positions: Tensor) -> Tensor:
    """No rotation."""
    return heads.clone()


def view_of(length: int, window: int | None = None, seed: int = 0) -> LayerView:
    """Random entries, each of the last `window` with its query (all of them by default)."""
    generator = torch.Generator().manual_seed(seed)
    window = length if window is None else window

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return LayerView(
        keys=random(KV_HEADS, length, DIM),
        values=random(KV_HEADS, length, DIM),
        positions=torch.arange(length).expand(KV_HEADS, length),
        queries=random(HEADS, window, DIM),
        next_position=length,
        turn=turn,
        scale=DIM**-0.5,
    )


def asked_for(press: Press, view: LayerView) -> LayerView:
    """The view with as many queries as the press wants."""
    assert view.queries is not None
    queries = view.queries[:, -press.num_queries :] if press.num_queries else None
    return dataclasses.replace(view, queries=queries)


def scores_of(press: Press, view: LayerView) -> Tensor:
    """Scores of the view with as many queries as the press wants."""
    return press.score(asked_for(press, view))
