"""What decides how well a press does: variants of presses on the same windows of text.

    python -m scripts.press_variants --corpus FOLDER --out docs/benchmarks/press-variants.json

`hybrid` with the smallest and with the largest key norms; and at a ratio of 0.5 what could help a
press that does no better than chance: a recent window of 128 tokens in place of 17, and for `knorm`
its first two layers whole, as its paper has them. Measured as `ppl` measures, paired window by
window with the uncompressed cache and with `random` under the same terms; with the same context,
stride and windows, figures are those of `ppl --grid`.

Beside it, whether a press keeps what it means to keep: the share of the attention of the next 64
tokens, in the model with its whole cache, that goes to entries kept of the first part. The JSON
holds names and figures, no text.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from fastinfer.config import DecodeConfig
from fastinfer.evaluation.corpora import read_corpus
from fastinfer.evaluation.environment import environment
from fastinfer.evaluation.perplexity import WindowLoss, difference, measure, summarise
from fastinfer.evaluation.windows import Window, coder_of, cut
from fastinfer.events import Role
from fastinfer.models.compression import CompressionPlan
from fastinfer.models.loading import LoadedModels, load_models
from fastinfer.models.pressed_cache import PressedKVCache
from fastinfer.models.session import Session
from fastinfer.presses import PRESSES
from fastinfer.presses.attention import attention_sum
from fastinfer.presses.base import Press, keep_best
from fastinfer.presses.hybrid import Hybrid
from fastinfer.presses.knorm import Knorm

INTERVAL = 64
CONTEXT = 1024
RATIOS = (0.25, 0.5, 0.75)
USUAL, WIDE = DecodeConfig().num_recent, 128  # newest entries that no press drops
CONTROL = "random"


@dataclass(frozen=True, kw_only=True)
class WholeBelow(Knorm):
    """Knorm that leaves the first layers whole: it holds more than the others do."""

    whole: int = 2

    def layer_budgets(self, n_keep: int, lengths: Sequence[int], least: int) -> tuple[int, ...]:
        """Not shared out: what the first layers keep is on top."""
        return (*lengths[: self.whole], *[n_keep] * (len(lengths) - self.whole))


SMALLEST, LARGEST = "hybrid, smallest norms", "hybrid, largest norms"
WHOLE = "knorm, first two layers whole"
Case = tuple[str, float, int]  # press, ratio, recent window
CASES: tuple[Case, ...] = (
    *((name, ratio, USUAL) for ratio in RATIOS for name in (CONTROL, SMALLEST, LARGEST)),
    (WHOLE, 0.5, USUAL),
    *((name, 0.5, WIDE) for name in PRESSES if name != "hybrid"),
)


def press_of(name: str) -> Press:
    """A press by its name here."""
    special = {
        SMALLEST: Hybrid(direction=-1.0), LARGEST: Hybrid(direction=1.0), WHOLE: WholeBelow()
    }  # fmt: skip
    return special.get(name) or PRESSES[name]


def losses_of(
    models: LoadedModels, windows: list[Window], plan: CompressionPlan | None, bar: tqdm[Any]
) -> list[WindowLoss]:
    """The loss of each window under one plan."""
    target = models.decoders[Role.TARGET]
    return measure(
        lambda: Session(target, Role.TARGET, models.vocab_size, plan=plan),
        windows,
        INTERVAL,
        bar.update,
    )


def run(models: LoadedModels, windows: list[Window]) -> dict[str, Any]:
    """Every case: its figures, and its distances from what it is held to."""
    found: dict[Case, list[WindowLoss]] = {}
    results: dict[str, Any] = {}
    with tqdm(total=len(windows) * (1 + len(CASES)), unit="window", file=sys.stderr) as bar:
        base = losses_of(models, windows, None, bar)
        results["uncompressed"] = summarise(base)
        for case in sorted(CASES, key=lambda case: case[0] != CONTROL):  # the control comes first
            name, ratio, recent = case
            plan = CompressionPlan(
                press=press_of(name), ratio=ratio, interval=INTERVAL, num_recent=recent
            )
            losses = found[case] = losses_of(models, windows, plan, bar)
            results[f"{name}@{ratio:g}, {recent} recent"] = {
                "press": name, "compression_ratio": ratio, "num_recent": recent,
                **summarise(losses),
                "over_uncompressed": difference(losses, base),
                "over_random": difference(losses, found[CONTROL, ratio, recent]),
            }  # fmt: skip
    for ratio in RATIOS:
        results[f"{LARGEST}@{ratio:g}, {USUAL} recent"]["over_smallest"] = difference(
            found[LARGEST, ratio, USUAL], found[SMALLEST, ratio, USUAL]
        )
    return results


@torch.inference_mode()
def attention_kept(models: LoadedModels, window: Window) -> dict[str, float]:
    """Of what the next tokens look at in the first part, the share on entries that stay at 0.5.

    Mean over layers, heads and tokens. The recent window is not counted: every press keeps it.
    """
    session = Session(
        models.decoders[Role.TARGET], Role.TARGET, models.vocab_size,
        plan=CompressionPlan(press=PRESSES["observed"], ratio=0.0),
    )  # fmt: skip
    cache = session.cache
    assert isinstance(cache, PressedKVCache)
    session.forward(window.ids[: window.first], 1)
    plan = CompressionPlan(press=PRESSES[CONTROL], ratio=0.5)
    n_keep = plan.entries_to_keep(window.first)
    presses = [*(name for name in PRESSES if name != "hybrid"), SMALLEST, LARGEST]
    kept: dict[str, list[Tensor]] = {name: [] for name in presses}
    lengths = cache.layer_lengths()
    for layer, view in enumerate(cache.layer_views()):
        for name in presses:
            press = press_of(name)
            queries = view.queries
            assert queries is not None
            newest = queries[:, max(0, queries.shape[1] - press.num_queries) :]
            budget = press.layer_budgets(n_keep, lengths, plan.num_sinks + USUAL)[layer]
            scores = press.score(dataclasses.replace(view, queries=newest))
            kept[name].append(keep_best(scores, budget, plan.num_sinks, USUAL))
    cache.record_queries(INTERVAL)
    session.forward(window.ids[: window.first + INTERVAL], 1)
    shares: dict[str, list[float]] = {name: [] for name in presses}
    counted = window.first - USUAL
    for layer, view in enumerate(cache.layer_views()):
        total = attention_sum(view).mean(dim=1)[:, plan.num_sinks : counted]  # sinks stay too
        for name in presses:
            stays = torch.zeros_like(total, dtype=torch.bool)
            for head, indices in enumerate(kept[name][layer]):
                inside = (indices >= plan.num_sinks) & (indices < counted)
                stays[head, indices[inside] - plan.num_sinks] = True
            shares[name].append(float(((total * stays).sum(-1) / total.sum(-1)).mean()))
    return {name: statistics.fmean(values) for name, values in shares.items()}


def attention_of(models: LoadedModels, windows: list[Window]) -> dict[str, Any]:
    """Each press's share over all windows."""
    found = [attention_kept(models, window) for window in windows]
    result = {}
    for name in found[0]:
        values = [each[name] for each in found]
        error = statistics.stdev(values) / len(values) ** 0.5
        result[name] = {"mean": statistics.fmean(values), "standard_error": error}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--corpus", required=True, help="a text file, or a folder of them")
    parser.add_argument("--max-windows", type=int, default=50)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    models = load_models(args.preset, {}, "auto", "auto")
    windows, notes = cut(
        read_corpus(args.corpus),
        coder_of(models.tokenizer),
        context=CONTEXT,
        stride=CONTEXT // 2,
        max_windows=args.max_windows,
    )
    target = models.decoders[Role.TARGET]
    document = {
        "kind": "fastinfer-press-variants",
        "environment": environment(),
        "model": target.name,
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
        "plan": {
            "corpus": Path(args.corpus).name,
            "context": CONTEXT,
            "stride": CONTEXT // 2,
            "interval": INTERVAL,
            "positions": "original",
        },
        "notes": notes,
        "attention_kept_at_0.5": attention_of(models, windows),
        "results": run(models, windows),
    }
    args.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name, share in document["attention_kept_at_0.5"].items():
        print(f"{name:48} keeps {share['mean']:.4f} ± {share['standard_error']:.4f} of attention")
    for name, result in document["results"].items():
        over = result.get("over_random", {"nats_per_token": 0.0, "standard_error": 0.0})
        print(
            f"{name:48} {result['perplexity']:8.2f} over random "
            f"{over['nats_per_token']:+.4f} ± {over['standard_error'] or 0.0:.4f}"
        )


if __name__ == "__main__":
    main()
