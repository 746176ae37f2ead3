"""Parts of `scripts.gpu_check` about single steps: bandwidth, parity, graphs against eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fastinfer.models.base import Decoder
from scripts.gpu_lab import SHAPES, Lab, Model, grouped_llama

# Largest difference of two logits over the largest logit. In bfloat16 the two paths round
# differently; a wrong mask or position gives differences near 1.
ALLOWED = {torch.float32: 1e-3, torch.bfloat16: 0.05}


def copy_bandwidth(lab: Lab, figures: dict[str, Any]) -> None:
    """The card's own speed: a large copy, bytes read and bytes written both counted."""
    source = torch.rand(lab.sizes.copy_bytes // 4, device=lab.device)
    target = torch.empty_like(source)
    ms = lab.median_ms(lambda: target.copy_(source))
    lab.bytes_per_second = 2 * source.nbytes / (ms / 1000.0)
    figures["copy_bytes"] = source.nbytes
    figures["ms"] = ms
    figures["bytes_per_second"] = lab.bytes_per_second


def parity(lab: Lab, figures: dict[str, Any]) -> None:
    """Graphs and the bare static step against the eager forward and transformers."""
    small = lab.names[0]
    configs = {small: SHAPES[lab.family][small](), "llama-grouped": grouped_llama(lab.sizes.hidden)}
    for name, config in configs.items():
        for dtype, allowed in ALLOWED.items():
            errors = _errors(lab, lab.build(config, dtype))
            label = str(dtype).removeprefix("torch.")
            figures[f"{name} {label}"] = {"relative_error": errors, "allowed": allowed}
    failed = [
        name for name, f in figures.items() if not max(f["relative_error"].values()) < f["allowed"]
    ]
    assert not failed, f"differs by more than rounding: {', '.join(failed)}"


def _errors(lab: Lab, model: Model) -> dict[str, float]:
    """Over a bucket's end (256) and a rollback. Where it is not a number, it is infinite."""
    ids = lab.tokens(300, model.eager.vocab_size)
    with torch.inference_mode():
        theirs = model.theirs(ids[None]).logits[0].float()
    pairs: dict[str, list[tuple[Tensor, Tensor]]] = {"graph_eager": [], "graph_transformers": []}
    for (start, eager), (_, graphed) in zip(
        _logits(model.eager, ids), _logits(model.graphed, ids), strict=True
    ):
        pairs["graph_eager"].append((graphed, eager))
        pairs["graph_transformers"].append((graphed, theirs[start : start + len(graphed)]))
    return {name: max(_relative(*pair) for pair in found) for name, found in pairs.items()}


def _logits(decoder: Decoder, ids: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Blocks of several lengths: where each starts, and its logits."""
    cache = decoder.new_cache()
    decoder.forward(ids[:240], cache, 1)
    for count in (1, 2, 17, 5, 1):
        start = cache.length
        yield start, decoder.forward(ids[start : start + count], cache, count)
        cache.rollback(start + count - count // 2)


def _relative(ours: Tensor, other: Tensor) -> float:
    error = float((ours - other).abs().max() / other.abs().max())
    return error if error == error else float("inf")


def steps(lab: Lab, figures: dict[str, Any]) -> None:
    """Milliseconds a step, eager and as a graph, and how near it is to reading the weights."""
    for name in lab.names:
        model = lab.model(name)
        weight_bytes = model.step_bytes()
        floor = weight_bytes / lab.bytes_per_second * 1000.0 if lab.bytes_per_second else None
        rows: list[dict[str, Any]] = []
        figures[name] = {"weight_bytes": weight_bytes, "floor_ms": floor, "steps": rows}
        for context in lab.sizes.contexts:
            for block in lab.sizes.blocks:
                eager = _step_ms(lab, model.eager, context, block)
                graph = _step_ms(lab, model.graphed, context, block)
                rows.append(
                    {
                        "context": context,
                        "block": block,
                        "eager_ms": eager,
                        "graph_ms": graph,
                        "eager_over_graph": eager / graph,
                        "graph_over_floor": graph / floor if floor else None,
                        "graph_bytes_per_second": weight_bytes / (graph / 1000.0),
                    }
                )
        figures[name]["graphs"] = model.graphed.num_graphs


def _step_ms(lab: Lab, decoder: Decoder, context: int, block: int) -> float:
    ids = lab.tokens(context + block, decoder.vocab_size)
    cache = decoder.new_cache()
    decoder.forward(ids[:context], cache, 1)
    return lab.median_ms(
        lambda: decoder.forward(ids[context:], cache, block), lambda: cache.rollback(context)
    )


LAYERS = 32  # of attention in one graph, so that the launch does not count


def attention(lab: Lab, figures: dict[str, Any]) -> None:
    """Microseconds of one layer's attention by bucket: SDPA with a mask, and plain products.

    Plain products spread one row over more of the card; this says from which length they pay.
    """
    heads, dim = (32, 80) if lab.device.type == "cuda" else (2, 16)
    for bucket in lab.sizes.buckets:
        for block in lab.sizes.blocks[:2]:
            query = torch.randn(heads, 1, block, dim, device=lab.device, dtype=torch.bfloat16)
            keys = torch.randn(heads, 1, bucket, dim, device=lab.device, dtype=torch.bfloat16)
            values = torch.randn_like(keys)
            mask = torch.zeros(block, bucket, device=lab.device, dtype=torch.bfloat16)
            figures[f"bucket {bucket}, block {block}"] = {
                f"{name}_us": _layer_us(lab, partial(function, query, keys, values, mask))
                for name, function in (("sdpa", _sdpa), ("products", _products))
            }


def _layer_us(lab: Lab, layer: Callable[[], Tensor]) -> float:
    def step() -> None:
        for _ in range(LAYERS):
            layer()

    return lab.median_ms(lab.capture()(step)) * 1000.0 / LAYERS


def _sdpa(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)


def _products(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = query @ keys.transpose(-1, -2) * query.shape[-1] ** -0.5 + mask
    weights: Tensor = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
    return weights @ values
