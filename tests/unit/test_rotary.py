"""Rotary tables: the scalings equal transformers', rotation is a rotation, tables grow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from fastinfer.models.architectures import read_architecture
from fastinfer.models.rotary import CHUNK, RotarySpec, RotaryTable, inverse_frequencies, rotate_

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


def test_rotation_turns_each_pair_by_position_times_frequency() -> None:
    """As complex numbers, pair (i, i + 2) is multiplied by exp(1j * position * frequency)."""
    table = RotaryTable(RotarySpec(dim=4, theta=100.0, scaling={}), CPU, torch.float32)
    heads = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    angles = torch.arange(5, 8)[:, None, None] * torch.tensor([1.0, 0.1])
    expected = torch.complex(heads[..., :2], heads[..., 2:]) * torch.polar(
        torch.ones_like(angles), angles
    )
    rotate_(heads, *table.rows(5, 3))
    torch.testing.assert_close(heads, torch.cat((expected.real, expected.imag), -1))


def test_rows_past_the_table_are_made_and_old_ones_stay() -> None:
    table = RotaryTable(RotarySpec(dim=4, theta=100.0, scaling={}), CPU, torch.float32)
    before = [rows.clone() for rows in table.rows(10, 3)]
    cos, sin = table.rows(CHUNK - 1, 3)
    assert cos.shape == sin.shape == (3, 1, 4)
    angle = (CHUNK + 1) * 0.1
    torch.testing.assert_close(cos[2, 0, 1], torch.tensor(angle).cos())
    torch.testing.assert_close(sin[2, 0, 3], torch.tensor(angle).sin())
    for old, new in zip(before, table.rows(10, 3), strict=True):
        assert torch.equal(old, new)
