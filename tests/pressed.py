"""Tiny random models of our own decoder to press, and a reference that knows no cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tiny import byte_tokenizer, tiny_neox
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from fastinfer.config import PRESS_NAMES
from fastinfer.engine import Engine
from fastinfer.events import Role
from fastinfer.models.compression import CompressionPlan
from fastinfer.models.loading import LoadedModels
from fastinfer.models.pressed_cache import PressedKVCache
from fastinfer.models.session import Session
from fastinfer.models.transformer import Block, Slots, TransformerDecoder, from_state_dict
from fastinfer.presses import PRESSES

VOCAB = 257
FAMILIES = ("neox", "llama")  # what `own_decoder` makes

# Every press with every kind of positions that it can have.
PRESSES_AND_POSITIONS = [
    (press, positions)
    for press in PRESS_NAMES
    for positions in ("original", "in_cache")
    if (press, positions) != ("pyramid", "in_cache")
]


def tiny_llama(
    seed: int, context: int = 256, vocab: int = 264, layers: int = 2
) -> LlamaForCausalLM:
    """A random Llama whose four heads share two key heads."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab, hidden_size=32, intermediate_size=48, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=context,
            bos_token_id=0, eos_token_id=0, initializer_range=0.4,
        )
    ).eval()  # fmt: skip


def own_decoder(family: str, seed: int = 1, context: int = 256) -> TransformerDecoder:
    """`neox` or `llama`, in float32 on the CPU."""
    model = tiny_neox(seed, context=context) if family == "neox" else tiny_llama(seed, context)
    return from_state_dict(
        model.config.to_dict(), model.state_dict(), torch.float32, torch.device("cpu"), family
    )


def own_engine(family: str, context: int = 256) -> Engine:
    """The target drafts for itself uncompressed, so a press on the target makes them differ."""
    target = own_decoder(family, 1, context)
    decoders = {
        Role.TARGET: target, Role.DRAFT: target, Role.INTERMEDIATE: own_decoder(family, 2, context)
    }  # fmt: skip
    return Engine(
        LoadedModels(
            preset="tiny", tokenizer=byte_tokenizer(), decoders=dict(decoders), vocab_size=VOCAB,
            end_ids=frozenset([0]),
        )
    )  # fmt: skip


def plan(press: str, positions: str = "original", **kwargs: object) -> CompressionPlan:
    """A plan with small protected parts, so that little text is enough to compress."""
    given = {"num_sinks": 2, "num_recent": 4, "in_cache": positions == "in_cache", **kwargs}
    return CompressionPlan(press=PRESSES[press], **given)  # type: ignore[arg-type]


def pressed(decoder: TransformerDecoder, its_plan: CompressionPlan) -> Session:
    """A session that compresses."""
    return Session(decoder, Role.TARGET, VOCAB, plan=its_plan)


def random_tokens(count: int, seed: int = 5) -> list[int]:
    """Ids that every tiny model has."""
    return torch.randint(1, 250, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def read(
    session: Session, tokens: Sequence[int], prompt: int, block: int = 3,
    after: Callable[[int], None] | None = None,
) -> Tensor:  # fmt: skip
    """Teacher-forced logits [len(tokens) - prompt + 1, vocab], after the prompt and each token on.

    In blocks of at most `block`, compressing where it is due; `after` hears of each compression.
    """
    rows = [session.forward(tokens[:prompt], 1)]
    done = prompt
    while done < len(tokens):
        # `done` tokens are read; the next one is committed, so `done` + 1 are.
        if session.maintain(tokens[: done + 1]) is not None and after is not None:
            after(done)
        count = min(block, len(tokens) - done, session.room_before_trigger(done + 1))
        rows.append(session.forward(tokens[: done + count], count))
        done += count
    return torch.cat(rows)


Kept = dict[
    int, list[Tensor]
]  # tokens read at a compression -> per layer [kv_heads, n] tokens kept


def watching(session: Session, kept: Kept) -> Callable[[int], None]:
    """An `after` for `read` that notes which tokens each layer and head kept."""
    cache = session.cache
    assert isinstance(cache, PressedKVCache)

    def after(done: int) -> None:
        kept[done] = [cache.tokens(layer).clone() for layer in range(len(cache.layer_lengths()))]

    return after


@torch.inference_mode()
def reference(
    decoder: TransformerDecoder, tokens: Sequence[int], kept: Kept, in_cache: bool
) -> Tensor:
    """Logits [n, vocab] of one pass without a cache, attention masked to what each token may see.

    Token i sees what the last compression before it kept, and all later tokens up to itself. Under
    `in_cache` what it sees is numbered from 0, for this token alone.
    """
    count, arch = len(tokens), decoder.arch
    layer_of = iter(range(arch.num_layers))
    buffers = [
        torch.zeros(1, 2 * arch.num_kv_heads, count, arch.head_dim) for _ in range(arch.num_layers)
    ]

    def turned(heads: Tensor, positions: Tensor) -> Tensor:
        decoder.rotary.reserve(int(positions.max()) + 1)
        copy = heads.clone()
        decoder.rotary.rotation_at(positions)(copy)
        return copy

    def seen(layer: int, head: int, i: int) -> Tensor:
        done = max((d for d in kept if d <= i), default=0)
        older = kept[done][layer][head] if done else torch.empty(0, dtype=torch.long)
        return torch.cat((older, torch.arange(done, i + 1)))

    def attend(query: Tensor, keys: Tensor, values: Tensor, window: int | None) -> Tensor:
        layer, group = next(layer_of), arch.num_heads // arch.num_kv_heads
        out = torch.zeros_like(query)
        for head in range(arch.num_heads):
            kv = head // group
            for i in range(count):
                visible = seen(layer, kv, i)
                places = torch.arange(len(visible)) if in_cache else visible
                k = turned(keys[0, kv, visible], places)
                q = turned(query[0, head, i : i + 1], places[-1:])
                weights = (q @ k.T * arch.head_dim**-0.5).softmax(-1)
                out[0, head, i] = (weights @ values[0, kv, visible])[0]
        return out

    slots = (Slots(b.copy_, b[:, : arch.num_kv_heads], b[:, arch.num_kv_heads :]) for b in buffers)
    block = Block(lambda heads: None, attend)
    return decoder.run(torch.tensor(tokens), block, slots, count)[:, :VOCAB].float()
