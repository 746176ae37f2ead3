"""The step of static shapes, and the decoder that replays it, against the eager forward.

On the CPU, with recordings that fix everything a CUDA graph would fix.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import torch
from pressed import read
from tape import Recorder, TapeCapture
from tiny import byte_tokenizer
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
)

from fastinfer.config import DecodeConfig, GammaConfig, SamplingConfig
from fastinfer.engine import Engine
from fastinfer.events import Role
from fastinfer.models import layers
from fastinfer.models.compression import CompressionPlan
from fastinfer.models.graphed_decoder import MAX_BLOCK, GraphedDecoder, with_graphs
from fastinfer.models.graphs import CudaCapture
from fastinfer.models.kv_cache import StaticKVCache
from fastinfer.models.linear import RowFunction
from fastinfer.models.loading import LoadedModels
from fastinfer.models.session import Session
from fastinfer.models.static_forward import (
    FIRST_CAPACITY,
    BucketedKVCache,
    StaticStep,
    bucket_for,
)
from fastinfer.models.transformer import TransformerDecoder, from_state_dict
from fastinfer.presses import PRESSES

pytestmark = pytest.mark.integration

CPU = torch.device("cpu")
TOLERANCE = 1e-4

SMALL: dict[str, Any] = {
    "vocab_size": 264,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 1400,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
CONFIGS = {
    "neox": GPTNeoXConfig(**SMALL),
    "neox-sequential": GPTNeoXConfig(**SMALL, use_parallel_residual=False),
    "llama-grouped": LlamaConfig(**GROUPED),
    "mistral-window": MistralConfig(**GROUPED, sliding_window=9),
    "qwen3": Qwen3Config(**GROUPED, head_dim=16),
}


def decoder_of(
    config: Any, dtype: torch.dtype = torch.float32, device: torch.device = CPU
) -> TransformerDecoder:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "rms_norm", gpu_rms_norm)
        return from_state_dict(config.to_dict(), model.state_dict(), dtype, device)


def gpu_rms_norm(weight: Tensor, eps: float) -> RowFunction:
    """As off the CPU: the short cut that one row has there reads a value in Python."""
    return lambda rows: F.rms_norm(rows, (weight.shape[-1],), None, eps) * weight


def tokens(count: int, seed: int = 1) -> Tensor:
    return torch.randint(0, 264, (count,), generator=torch.Generator().manual_seed(seed))


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape and a.dtype == b.dtype == torch.float32
    return float((a - b).abs().max())


class Captures:
    """Makes captures and remembers them."""

    def __init__(self) -> None:
        self.made: list[TapeCapture] = []

    def __call__(self) -> TapeCapture:
        self.made.append(TapeCapture())
        return self.made[-1]


@torch.inference_mode()
def static_logits(decoder: TransformerDecoder, cache: StaticKVCache, block: Tensor) -> Tensor:
    """The step by itself, nothing recorded."""
    step = StaticStep(decoder, MAX_BLOCK)
    step.move(cache.length, cache.num_entries())
    step.feed(block)
    step.run(len(block), bucket_for(cache.num_entries() + len(block)), cache.storage)
    cache.advance(len(block))
    return step.logits(len(block), len(block))


def test_buckets() -> None:
    assert [bucket_for(n) for n in (1, 256, 257, 512, 513, 2048, 2049)] == [
        256, 256, 512, 512, 1024, 2048, 4096
    ]  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_the_static_step_equals_the_eager_forward(name: str) -> None:
    decoder, ids = decoder_of(CONFIGS[name]), tokens(300)
    eager, static = decoder.new_cache(), BucketedKVCache(decoder, None)
    for cache in (eager, static):
        decoder.forward(ids[:120], cache, 1)
    start = 120
    for count in (2, 1, 17, 5, 3):
        block = ids[start : start + count]
        ours = static_logits(decoder, static, block)
        assert difference(ours, decoder.forward(block, eager, count)) < TOLERANCE
        start += count


def test_the_static_step_in_bfloat16_is_near_the_eager_forward() -> None:
    decoder, ids = decoder_of(CONFIGS["neox"], torch.bfloat16), tokens(60)
    eager, static = decoder.new_cache(), BucketedKVCache(decoder, None)
    for cache in (eager, static):
        decoder.forward(ids[:50], cache, 1)
    expected = decoder.forward(ids[50:], eager, 10)
    ours = static_logits(decoder, static, ids[50:])
    assert difference(ours, expected) < 0.02 * float(expected.abs().max())


def test_what_is_recorded_does_not_depend_on_the_cursor() -> None:
    """Not in one number or shape, so a recording is right wherever the cursor stands."""
    decoder = decoder_of(CONFIGS["llama-grouped"])
    step, cache = StaticStep(decoder, MAX_BLOCK), BucketedKVCache(decoder, None)
    cache.reserve(1)
    recorded = []
    for cursor in (5, 200):
        step.move(cursor, cursor)
        with torch.inference_mode(), Recorder() as recorder:
            step.run(4, 256, cache.storage)
        recorded.append(recorder.shapes())
    assert recorded[0] == recorded[1] and len(recorded[0]) > 20


def test_attention_reads_no_further_than_the_bucket() -> None:
    decoder, ids = decoder_of(CONFIGS["neox"]), tokens(60)
    clean, poisoned = BucketedKVCache(decoder, None), BucketedKVCache(decoder, None)
    for cache in (clean, poisoned):
        decoder.forward(ids[:50], cache, 1)
    poisoned.storage[:, :, :, 256:] = torch.nan
    block = ids[50:]
    assert torch.equal(
        static_logits(decoder, clean, block), static_logits(decoder, poisoned, block)
    )


@pytest.mark.parametrize("name", ["neox", "mistral-window"])
def test_any_order_of_blocks_and_rollbacks_equals_the_eager_forward(name: str) -> None:
    """Through 256, 512 and 1024 entries: buckets change and the storage grows."""
    decoder, ids, chance = decoder_of(CONFIGS[name]), tokens(1400), random.Random(3)
    captures = Captures()
    graphed = GraphedDecoder(decoder, captures, max_block=5)
    eager, ours = decoder.new_cache(), graphed.new_cache()
    count = 240
    while ours.length <= FIRST_CAPACITY + 50:
        part = ids[ours.length : ours.length + count]
        wanted = chance.randint(1, len(part))
        expected = decoder.forward(part, eager, wanted)
        assert difference(graphed.forward(part, ours, wanted), expected) < TOLERANCE
        assert ours.length == eager.length
        back = ours.length - chance.randint(0, min(3, len(part)))
        eager.rollback(back)
        ours.rollback(back)
        assert ours.num_entries() == eager.num_entries()
        count = 100 if chance.random() < 0.15 else chance.randint(1, 5)
    assert len(captures.made) > 2 and sum(c.replays for c in captures.made) > 25


def test_a_prefill_records_every_block_length_and_rounds_none() -> None:
    decoder, captures = decoder_of(CONFIGS["neox"]), Captures()
    graphed = GraphedDecoder(decoder, captures, max_block=4)
    cache = graphed.new_cache()
    graphed.forward(tokens(3), cache, 1)
    assert graphed.num_graphs == 4
    before = [c.recordings for c in captures.made]
    for count in (1, 2, 3, 4):
        graphed.forward(tokens(count), cache, count)
    assert [c.recordings for c in captures.made] == before
    assert captures.made[-1].replays == 4


def test_recordings_stop_where_the_context_ends() -> None:
    config = GPTNeoXConfig(**{**SMALL, "max_position_embeddings": 20})
    graphed = GraphedDecoder(decoder_of(config), TapeCapture, max_block=8)
    cache = graphed.new_cache()
    graphed.forward(tokens(15), cache, 1)
    assert graphed.num_graphs == 5
    with pytest.raises(ValueError, match="at most 20 tokens, not 21"):
        graphed.forward(tokens(6), cache, 1)
    assert cache.length == 15
    graphed.forward(tokens(5), cache, 1)
    assert cache.length == 20


def test_the_storage_is_lent_to_one_request_at_a_time() -> None:
    decoder, captures = decoder_of(CONFIGS["neox"]), Captures()
    graphed = GraphedDecoder(decoder, captures, max_block=4)
    first, second = graphed.new_cache(), graphed.new_cache()
    for cache in (first, second):
        graphed.forward(tokens(9), cache, 1)
    replays = captures.made[-1].replays
    expected = graphed.forward(tokens(2, seed=5), second, 2)
    assert captures.made[-1].replays == replays, "a second request runs eagerly"
    assert difference(graphed.forward(tokens(2, seed=5), first, 2), expected) < TOLERANCE
    assert captures.made[-1].replays == replays + 1

    first.storage[:] = torch.nan  # the next borrower must not be touched by it
    del first
    third = graphed.new_cache()
    graphed.forward(tokens(9), third, 1)
    assert difference(graphed.forward(tokens(2, seed=5), third, 2), expected) < TOLERANCE
    assert captures.made[-1].replays == replays + 2, "lent again, and its graphs still stand"


def test_a_request_with_a_press_stays_outside_the_graphs() -> None:
    decoder, captures = decoder_of(CONFIGS["llama-grouped"]), Captures()
    graphed = GraphedDecoder(decoder, captures)
    ids = tokens(60).tolist()
    both = []
    for one in (decoder, graphed):
        plan = CompressionPlan(press=PRESSES["snapkv"], interval=5, num_recent=4)
        both.append(read(Session(one, Role.TARGET, 264, plan=plan), ids, 40))
    assert difference(*both) == 0.0
    assert captures.made[-1].recordings == 0
    free = graphed.new_cache()
    assert isinstance(free, BucketedKVCache), "the storage was not lent to it"


def test_logits_stay_what_they_were_when_the_next_block_runs() -> None:
    graphed = GraphedDecoder(decoder_of(CONFIGS["neox"]), TapeCapture)
    cache = graphed.new_cache()
    graphed.forward(tokens(9), cache, 1)
    logits = graphed.forward(tokens(2), cache, 2)
    kept = logits.clone()
    graphed.forward(tokens(2, seed=9), cache, 2)
    assert torch.equal(logits, kept)


def test_without_cuda_the_decoder_stays_as_it_is() -> None:
    decoder = decoder_of(CONFIGS["neox"])
    assert with_graphs(decoder) is decoder


@pytest.mark.parametrize(("method", "used"), [("speculative", 2), ("cascade", 3)])
def test_an_engine_over_graphs_writes_the_same_text_and_gives_the_storage_back(
    method: Any, used: int
) -> None:
    sizes = {Role.DRAFT: 1, Role.INTERMEDIATE: 1, Role.TARGET: 2}
    plain = {
        role: decoder_of(GPTNeoXConfig(**{**SMALL, "num_hidden_layers": layers}))
        for role, layers in sizes.items()
    }
    captures = Captures()
    graphed = {role: GraphedDecoder(decoder, captures) for role, decoder in plain.items()}
    constant = GammaConfig(policy="constant", initial=3)  # cost_aware looks at the clock
    config = DecodeConfig(
        method=method, max_new_tokens=30, rule="coupled", ignore_eos=True, gamma=constant,
        inner_gamma=constant, sampling=SamplingConfig(seed=3),
    )  # fmt: skip
    texts, replays = [], []
    for decoders in (plain, graphed, graphed):
        models = LoadedModels(
            preset="tiny", tokenizer=byte_tokenizer(), decoders=dict(decoders), vocab_size=257,
            end_ids=frozenset([0]),
        )  # fmt: skip
        engine = Engine(models)
        texts.append(engine.generate("What the sea gave", config).token_ids)
        replays.append(sum(c.replays for c in captures.made))
    assert texts[0] == texts[1] == texts[2]
    assert replays[0] == 0 < replays[1] and replays[2] == 2 * replays[1]
    assert len(captures.made) == len(graphed) + used, "the second run needed no new graphs"


@pytest.mark.gpu
@pytest.mark.parametrize("name", CONFIGS)
def test_real_graphs_equal_the_eager_forward(name: str) -> None:
    device = torch.device("cuda")
    decoder = decoder_of(CONFIGS[name], device=device)
    graphed = GraphedDecoder(decoder, partial(CudaCapture, device), max_block=4)
    ids = tokens(300).to(device)
    eager, ours = decoder.new_cache(), graphed.new_cache()
    for cache, forward in ((eager, decoder.forward), (ours, graphed.forward)):
        forward(ids[:250], cache, 1)
    for start, count in ((250, 1), (251, 4), (255, 3), (258, 2)):
        block = ids[start : start + count]
        expected = decoder.forward(block, eager, count)
        assert difference(graphed.forward(block, ours, count), expected) < 1e-3
