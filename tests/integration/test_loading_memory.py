"""Loading needs little more memory than the weights take: the peak of a process that does it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, LlamaConfig, PreTrainedConfig

from fastinfer.models.half_matrix import has_kernel

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc"),
]

MEASURE_PEAK = """
import sys
from pathlib import Path
import torch
from fastinfer.events import Role
from fastinfer.models.loading import load_decoder

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

def load(folder):
    dtype = getattr(torch, sys.argv[2])
    decoder = load_decoder(Role.TARGET, "x", folder, dtype, torch.device("cpu"))
    decoder.forward(torch.arange(8), decoder.new_cache(), 1)  # mapped weights are read only here
    return decoder

folder = Path(sys.argv[1])
load(folder / "small")  # loads the libraries
Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again
before = memory("VmRSS")
decoder = load(folder / "large")
weights = (folder / "large" / "model.safetensors").stat().st_size
print(decoder.backend, (memory("VmHWM") - before) / weights)
"""

LLAMA = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
LAYER = {"hidden_size": 512, "intermediate_size": 2048}
LLAMAS = (
    LlamaConfig(**LLAMA, **LAYER, vocab_size=256, num_hidden_layers=1),
    LlamaConfig(**LLAMA, **LAYER, vocab_size=24000, num_hidden_layers=12, tie_word_embeddings=True),
)
BLOOMS = (
    BloomConfig(vocab_size=256, hidden_size=64, n_head=4, n_layer=2),
    BloomConfig(vocab_size=24000, hidden_size=512, n_head=8, n_layer=30),
)


def save(config: PreTrainedConfig, folder: Path) -> None:
    """A model of ones in bfloat16: random numbers would take longer than all the rest."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device="cpu").load_state_dict(
        {name: torch.ones_like(weight) for name, weight in model.state_dict().items()}
    )
    model.tie_weights()
    model.save_pretrained(folder)


def peak(configs: tuple[PreTrainedConfig, ...], dtype: str, folder: Path) -> tuple[str, float]:
    """What ran the second model, and the peak of loading it, over the bytes of its file."""
    for name, config in zip(("small", "large"), configs, strict=True):
        save(config, folder / name)
    run = [sys.executable, "-c", MEASURE_PEAK, str(folder), dtype]
    result = subprocess.run(run, capture_output=True, text=True, check=True, timeout=300)
    backend, times = result.stdout.split()
    return backend, float(times)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_our_own_decoder(dtype: str, tmp_path: Path) -> None:
    """In float32 too, where torch has the product that keeps 16 bits of each weight."""
    if dtype == "float32" and not has_kernel():
        pytest.skip("this torch has no FBGEMM")
    backend, times = peak(LLAMAS, dtype, tmp_path)
    assert backend == "fastinfer"
    assert times < 1.3


def test_through_transformers(tmp_path: Path) -> None:
    backend, times = peak(BLOOMS, "bfloat16", tmp_path)
    assert backend == "transformers"
    assert 0.8 < times < 1.3
