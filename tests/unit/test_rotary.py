"""Rotary tables: the scalings equal transformers', rotation is a rotation, tables grow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from fastinfer.models.architectures import read_architecture
from fastinfer.models.rotary import CHUNK, RotarySpec, RotaryTable, inverse_frequencies

CPU = torch.device("cpu")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    LLAMA3,
    {**LLAMA3, "factor": 8.0, "original_max_position_embeddings": 512},
    YARN,
    {**YARN, "truncate": False},
    {**YARN, "attention_factor": 1.25},
    {**YARN, "mscale": 0.7, "mscale_all_dim": 1.1},
    {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scaled_frequencies_equal_transformers(scaling: dict[str, Any]) -> None:
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=8192,
        rope_parameters={"rope_theta": 500000.0, **scaling},
    )
    expected, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config)
    frequencies, ours = inverse_frequencies(read_architecture(config.to_dict()).rotary)
    assert ours == pytest.approx(factor)
    torch.testing.assert_close(frequencies, expected, rtol=1e-5, atol=0.0)


def test_default_frequencies() -> None:
    frequencies, factor = inverse_frequencies(RotarySpec(dim=4, theta=100.0, scaling={}))
    assert frequencies.tolist() == pytest.approx([1.0, 0.1])
    assert factor == 1.0


def table() -> RotaryTable:
    return RotaryTable(RotarySpec(dim=4, theta=100.0, scaling={}), CPU, torch.float32)


@pytest.mark.parametrize("start", [0, 5, CHUNK - 1])  # the last one makes the table grow
def test_rotation_turns_each_pair_by_position_times_frequency(start: int) -> None:
    """As complex numbers, pair (i, i + 2) is multiplied by exp(1j * position * frequency)."""
    heads = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    angles = torch.arange(start, start + 3)[:, None] * torch.tensor([1.0, 0.1])
    expected = torch.complex(heads[..., :2], heads[..., 2:]) * torch.polar(
        torch.ones_like(angles), angles
    )
    table().rotation(start, 3)(heads)
    torch.testing.assert_close(heads, torch.cat((expected.real, expected.imag), -1))


def test_values_past_the_rotary_dimension_have_no_position() -> None:
    heads = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    before = heads.clone()
    table().rotation(9, 3)(heads)
    assert torch.equal(heads[..., 4:], before[..., 4:])
    assert not torch.equal(heads[..., :4], before[..., :4])


def test_growing_leaves_old_positions_as_they_were() -> None:
    one = table()
    before, after = torch.ones(3, 4), torch.ones(3, 4)
    one.rotation(10, 3)(before)
    one.rotation(3 * CHUNK, 1)(torch.ones(1, 4))
    one.rotation(10, 3)(after)
    assert torch.equal(before, after)


@pytest.mark.parametrize("scaling", [{}, {"rope_type": "linear", "factor": 4.0}, YARN])
def test_moved_keys_are_those_rotated_anew(scaling: dict[str, Any]) -> None:
    kind = scaling.get("rope_type", "default")
    numbers = {k: v for k, v in scaling.items() if isinstance(v, (int, float))}
    spec = RotarySpec(dim=8, theta=1e4, kind=kind, scaling=numbers)
    table = RotaryTable(spec, CPU, torch.float32)
    raw = torch.randn(3, 40, 12, generator=torch.Generator().manual_seed(0))
    old, new = raw.clone(), raw[:, 25:].clone()
    table.rotation(0, 40)(old)
    table.rotation(0, 15)(new)
    there = torch.arange(15)
    moved = table.moved(old[:, 25:], there + 25, there)
    torch.testing.assert_close(moved, new, atol=1e-5, rtol=1e-5)
    for _ in range(300):  # to and fro adds up to nothing
        moved = table.moved(table.moved(moved, there, there + 9000), there + 9000, there)
    torch.testing.assert_close(moved, new, atol=1e-4, rtol=1e-4)


def test_turned_back_is_what_it_was_and_the_length_stays() -> None:
    table = RotaryTable(RotarySpec(dim=4, theta=100.0, scaling={}), CPU, torch.float32)
    heads = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    places = torch.tensor([3, 1, 4, 1, 5])
    turned = table.turned(heads, places)
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1))
    torch.testing.assert_close(table.turned(turned, -places), heads)
    expected = heads.clone()
    table.rotation_at(places)(expected)
    torch.testing.assert_close(turned, expected)
    # One head, many places: as expected_attention averages rotations.
    assert table.turned(heads[:1, :1], torch.arange(9)).shape == (1, 9, 6)
