"""Our presses keep what kvpress 0.5.5 keeps, on tensors that it was run on.

kvpress always keeps what it scores with (SnapKV's window, TOVA's last token) and StreamingLLM's
sinks; here sinks and recent entries are protected by whoever compresses, so the test asks for the
same protection. No decision is a near tie that rounding could turn.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fastinfer.presses import PRESSES, LayerView, Press, keep_best
from fastinfer.presses.snapkv import SnapKV

GOLDEN = Path(__file__).with_name("kvpress.safetensors")
RATIOS = (0.25, 0.5, 0.75)
NUM_LAYERS = 3
SNAPKV_WINDOW = 16
# Name -> sinks and recent entries that kvpress protects on its own.
PROTECTED = {
    "streaming": (4, 0),
    "knorm": (0, 0),
    "snapkv": (0, SNAPKV_WINDOW),
    "tova": (0, 1),
    "observed": (0, 0),
    "expected_attention": (4, 0),
    "keydiff": (0, 0),
}


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return load_file(GOLDEN)


def press_of(name: str) -> Press:
    return SnapKV(num_queries=SNAPKV_WINDOW) if name == "snapkv" else PRESSES[name]


def view_of(golden: dict[str, Tensor], layer: int, num_queries: int) -> LayerView:
    """What a press that asks for `num_queries` would see after kvpress's prompt."""
    keys, queries = golden[f"keys.{layer}"], golden[f"queries.{layer}"]
    frequencies = golden["frequencies"]

    def turn(heads: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        first, second = heads.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    length = keys.shape[1]
    return LayerView(
        keys=keys,
        values=golden[f"values.{layer}"],
        positions=torch.arange(length).expand(len(keys), length),
        queries=queries[:, -num_queries:] if num_queries else None,
        next_position=length,
        turn=turn,
        scale=keys.shape[2] ** -0.5,
        layer=layer,
        num_layers=NUM_LAYERS,
    )


@pytest.mark.parametrize("layer", range(NUM_LAYERS))
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("name", PROTECTED)
def test_kept_entries_are_those_of_kvpress(
    golden: dict[str, Tensor], name: str, ratio: float, layer: int
) -> None:
    press = press_of(name)
    view = view_of(golden, layer, press.num_queries)
    theirs = golden[f"kept.{name}.{ratio}.{layer}"].long()
    scores = press.score(view)
    assert torch.equal(keep_best(scores, theirs.shape[1], *PROTECTED[name]), theirs)
    assert narrowest_decision(scores, theirs.shape[1], *PROTECTED[name]) > 1e-4


def narrowest_decision(scores: Tensor, n_keep: int, num_sinks: int, num_recent: int) -> float:
    """Relative gap between the last entry kept and the first one dropped, at its least."""
    middle = scores[:, num_sinks : scores.shape[1] - num_recent].sort(-1, descending=True).values
    last = n_keep - num_sinks - num_recent - 1
    return float((1 - middle[:, last + 1] / middle[:, last]).abs().min())


def test_the_presses_disagree_with_one_another(golden: dict[str, Tensor]) -> None:
    """Else a parity that always returned the same entries would pass."""
    kept = [golden[f"kept.{name}.0.5.{layer}"] for name in PROTECTED for layer in range(NUM_LAYERS)]
    for i, one in enumerate(kept):
        for j in range(i):
            both_stream = max(i, j) < NUM_LAYERS  # streaming is the same in every layer
            assert torch.equal(one, kept[j]) == both_stream
