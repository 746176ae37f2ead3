"""The bundled models as they are shipped: lossless in float32, and in bfloat16 up to near-ties."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.events import Origin, Role, Step
from fastinfer.models.catalog import BUNDLED
from fastinfer.models.session import Session

NANO = BUNDLED / "nano"
PROMPT = "The old man looked at the sea and"
METHODS = ("autoregressive", "speculative", "cascade")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not (NANO / "target").is_dir(), reason="the nano models are not here"),
]


@pytest.fixture(scope="module")
def exact() -> Engine:
    return load("nano", dtype="float32")


@pytest.fixture(scope="module")
def rounded() -> Engine:
    return load("nano", dtype="bfloat16")


def prompts() -> list[str]:
    examples = json.loads((NANO.parents[1] / "examples.json").read_text())
    return [PROMPT, *(example["prompt"] for example in examples)]


def config(**options: object) -> DecodeConfig:
    # A policy without a clock: the same seed then gives the same blocks.
    base = {"max_new_tokens": 48, "ignore_eos": True, "gamma_policy": "aimd"}
    return DecodeConfig.from_mapping({**base, **options})


@pytest.mark.parametrize(
    "index", range(len(prompts())) if (NANO.parents[1] / "examples.json").exists() else [0]
)
def test_greedy_is_one_text_in_float32(exact: Engine, index: int) -> None:
    texts = {
        m: exact.generate(prompts()[index], config(method=m, temperature=0)).text for m in METHODS
    }
    assert len(set(texts.values())) == 1


def test_coupled_is_one_text_in_float32(exact: Engine) -> None:
    options = {"temperature": 0.9, "seed": 7, "rule": "coupled", "max_new_tokens": 80}
    texts = {exact.generate(PROMPT, config(method=m, **options)).text for m in METHODS}
    assert len(texts) == 1


def test_prompt_lookup_is_the_same_text(exact: Engine) -> None:
    prompt = f"{PROMPT} said so. {PROMPT}"
    baseline = exact.generate(prompt, config(method="autoregressive", temperature=0))
    lookup = exact.generate(prompt, config(draft="prompt-lookup", temperature=0))
    assert lookup.text == baseline.text


def long_prompt(engine: Engine, num_tokens: int) -> list[int]:
    """The example prompts over and over."""
    ids = engine.encode("\n\n".join(prompts()))
    return (ids * (num_tokens // len(ids) + 1))[:num_tokens]


@pytest.mark.parametrize(
    "own",
    [
        {"draft": "self"},
        {"method": "cascade", "intermediate": "self"},
        {"draft": "self", "press": "snapkv", "press_on": "draft", "compression_ratio": 0.9},
    ],
)
def test_the_target_drafts_for_itself_over_1500_tokens(
    exact: Engine, own: dict[str, object]
) -> None:
    prompt = long_prompt(exact, 1500)
    options = {"temperature": 0, "max_new_tokens": 80, "press_interval": None}
    baseline = exact.generate(prompt, config(method="autoregressive", **options))
    run = exact.generate(prompt, config(**{**options, **own}))
    assert run.token_ids == baseline.token_ids
    assert run.stats.started is not None and run.stats.started.lossless
    assert sum(run.stats.compressions.values()) >= 1, "it drafts over a smaller cache"
    assert run.stats.stages[Role.TARGET].num_accepted > 0


def test_all_four_origins_appear_in_a_cascade(rounded: Engine) -> None:
    run = rounded.generate(
        PROMPT, config(method="cascade", temperature=0.8, seed=1, max_new_tokens=80)
    )
    assert set(run.stats.origins) >= {
        Origin.DRAFT, Origin.INTERMEDIATE, Origin.RESAMPLED, Origin.BONUS,
    }  # fmt: skip
    assert set(run.stats.cache_tokens) == set(Role)


def test_bfloat16_texts_part_at_near_ties_only(rounded: Engine) -> None:
    """A block and a single token round differently (llama.cpp#27407, mlx-lm#1423).

    Both greedy texts are read back one token at a time and as one block; where the texts part, the
    two candidates' logits differ by no more than such readings differ from each other.
    """
    models = rounded._models
    for prompt in prompts()[:3]:
        runs = [
            rounded.generate(prompt, config(method=m, temperature=0)).token_ids for m in METHODS
        ]
        ids = rounded.check(prompt, config())
        for a, b in itertools.combinations(runs, 2):
            parting = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)
            if parting is None:
                continue
            prefix = [*ids, *a[:parting]]
            whole = Session(models.decoders[Role.TARGET], Role.TARGET, models.vocab_size)
            block = whole.forward(prefix, 1)[0]
            single = Session(models.decoders[Role.TARGET], Role.TARGET, models.vocab_size)
            single.forward(prefix[:-1], 1)
            alone = single.forward(prefix, 1)[0]
            # bfloat16 keeps 8 bits, so a logit of size 16 is known to about 0.06.
            rounding = 4 * float(alone.abs().amax()) * 2.0**-8
            for logits in (block, alone):
                gap = float((logits[a[parting]] - logits[b[parting]]).abs())
                assert gap <= rounding, f"texts part at {parting} by {gap}, rounding is {rounding}"


def test_the_shipped_files_suit_a_space() -> None:
    files = [path for path in NANO.rglob("*") if path.is_file()]
    assert max(path.stat().st_size for path in files) <= 9 * 1024 * 1024
    assert sum(path.stat().st_size for path in files) <= 50 * 1024 * 1024
    for role in Role:
        dtypes = {t for p in (NANO / role.value).glob("*.safetensors") for t in stored_dtypes(p)}
        assert dtypes == {"BF16"}


def stored_dtypes(path: Path) -> set[str]:
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}


def test_the_report_shows_that_loss_keeps_falling_with_context() -> None:
    report = json.loads((NANO / "training.json").read_text())
    losses = report["heldout_loss"]["target"]["by_position"]
    assert list(losses.values()) == sorted(losses.values(), reverse=True), losses


def test_drafts_agree_with_the_target(rounded: Engine) -> None:
    """sum(min(p, q)) on the models' own text: a draft trained from the target is worth having."""
    run = rounded.generate(PROMPT, config(method="autoregressive", seed=3, max_new_tokens=120))
    tokens = [*rounded.check(PROMPT, config()), *run.token_ids]
    laws = {}
    for role in Role:
        session = Session(rounded._models.decoders[role], role, rounded._models.vocab_size)
        laws[role] = session.forward(tokens, 100).softmax(-1)
    for role in (Role.DRAFT, Role.INTERMEDIATE):
        overlap = float(torch.minimum(laws[role], laws[Role.TARGET]).sum(-1).mean())
        assert overlap > 0.5, role


def test_steps_are_whole(rounded: Engine) -> None:
    run = rounded.generate(PROMPT, config(method="cascade", seed=2))
    assert all(step.tokens for step in run.events if isinstance(step, Step))
