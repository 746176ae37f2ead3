"""The training recipe: schedule, windows, losses; and a whole small run that is resumed."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fastinfer.config import ConfigError
from fastinfer.training import nano
from fastinfer.training.corpus import Windows, encode, read_documents, train_tokenizer
from fastinfer.training.heldout import DEPTHS, MIN_TOKENS, STRIDE, by_position, heldout_losses
from fastinfer.training.recipe import CONTEXT, SHAPES, Recipe, Shape, build_model
from fastinfer.training.run import distillation_loss, drafting_loss, mixed_labels

TALE = "The boat came home at dusk, and nobody spoke. The lamp was lit. The sea went on. "


def test_documents_are_parted_by_form_feeds_and_xz_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\x0ctwo\x0c\n")
    (tmp_path / "b.xz").write_bytes(lzma.compress(b"three"))
    (tmp_path / "ignored.bin").write_bytes(b"\x00")
    assert list(read_documents(tmp_path)) == ["one\n", "two\n", "three\n"]


def test_a_corpus_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="corpus: no text file"):
        list(read_documents(tmp_path / "nothing"))


def test_the_tokenizer_round_trips_any_text() -> None:
    tokenizer = train_tokenizer(iter([TALE]), 300)
    text = "A new word: naïve 🌊\n\ttabs"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.token_to_id("<|endoftext|>") == 0


def test_documents_end_with_the_end_id() -> None:
    tokenizer = train_tokenizer(iter([TALE]), 300)
    stream = encode(tokenizer, iter(["ab", "c"]))
    assert stream.tolist().count(0) == 2
    assert stream[-1] == 0


def test_windows_do_not_overlap_within_a_lap_and_depend_on_the_seed_only() -> None:
    stream = np.arange(1001, dtype=np.uint16)
    windows = Windows(stream, seed=3)
    lap = windows.batch(0, 100, 10)
    assert sorted(lap[:, 0].tolist()) == list(range(0, 1000, 10))
    assert torch.equal(lap[:, 1:] - lap[:, :-1], torch.ones(100, 10, dtype=torch.long))
    assert torch.equal(Windows(stream, seed=3).batch(40, 5, 10), lap[40:45])
    assert not torch.equal(Windows(stream, seed=4).batch(0, 100, 10), lap)
    assert not torch.equal(windows.batch(100, 100, 10), lap)  # the next lap is shuffled anew


def test_a_share_of_the_windows_has_passages_that_come_twice() -> None:
    stream = np.arange(20_000, dtype=np.uint16)  # nothing in it repeats
    windows = Windows(stream, seed=3)
    plain, made = windows.batch(0, 40, 400), windows.batch(0, 40, 400, repeating=0.5)
    changed = [row for row in range(40) if not torch.equal(plain[row], made[row])]
    assert 10 < len(changed) < 30
    for row in changed:
        ids = made[row].tolist()
        assert len(set(ids)) <= len(ids) - 16  # plain windows repeat nothing
    assert torch.equal(windows.batch(20, 20, 400, repeating=0.5), made[20:])  # whoever asks


def test_more_than_half_of_a_run_sees_long_windows() -> None:
    recipe = Recipe(tokens=4096 * 100)
    lengths = [recipe.window_at(step)[0] for step in range(100)]
    assert lengths == [256] * 45 + [2048] * 55
    assert [recipe.window_at(step)[1] for step in (0, 1, 45, 46, 99)] == [0, 16, 0, 2, 108]


def test_the_rate_warms_up_stays_and_falls() -> None:
    recipe = Recipe(tokens=4096 * 1000)
    rates = [recipe.rate_at(step) for step in range(1000)]
    assert rates[0] == pytest.approx(1 / 20)
    assert set(rates[19:500]) == {1.0}
    assert rates[500:] == sorted(rates[500:], reverse=True)
    assert rates[-1] == pytest.approx(recipe.final_rate, abs=0.01)


def test_the_shapes_are_those_of_the_card() -> None:
    sizes = {
        role: sum(p.numel() for p in build_model(shape, 0, 1).parameters())
        for role, shape in SHAPES.items()
    }
    assert sizes == {"target": 15_769_344, "intermediate": 4_208_128, "draft": 921_088}


def test_distillation_is_kl_and_text_in_their_shares() -> None:
    student, teacher = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    labels = torch.randint(0, 5, (2, 3))
    student.requires_grad_()
    loss = distillation_loss(student, mixed_labels(teacher.clone(), labels))
    ours = torch.autograd.grad(loss, student)[0]
    kl = torch.nn.functional.kl_div(
        student.log_softmax(-1).flatten(0, 1), teacher.softmax(-1).flatten(0, 1),
        reduction="batchmean",
    )  # fmt: skip
    text = torch.nn.functional.cross_entropy(student.flatten(0, 1), labels.flatten())
    expected = torch.autograd.grad(0.8 * kl + 0.2 * text, student)[0]
    assert torch.allclose(ours, expected, atol=1e-6)


def test_the_drafts_loss_counts_what_verification_would_refuse() -> None:
    student, teacher = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    p, q = (logits.div(0.8).softmax(-1) for logits in (teacher, student))
    refused = 1.0 - torch.minimum(p, q).sum(-1).mean()
    entropy = -(teacher.softmax(-1) * student.log_softmax(-1)).sum(-1).mean()
    assert drafting_loss(student, teacher).item() == pytest.approx(
        (10.0 * refused + entropy).item(), rel=1e-5
    )
    alone = torch.distributions.Categorical(logits=teacher).entropy().mean()
    assert drafting_loss(teacher, teacher).item() == pytest.approx(alone.item(), rel=1e-5)


def test_losses_by_position_cover_the_context() -> None:
    table = by_position(torch.arange(CONTEXT, dtype=torch.float))
    assert next(iter(table)) == "0-256"
    assert table["0-256"] == 127.5
    assert list(table)[-1].endswith(str(CONTEXT))


class Unigram(torch.nn.Module):
    """Knows how often each id comes and looks at nothing: context can't help it."""

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        return SimpleNamespace(logits=torch.arange(8.0).expand(*input_ids.shape, 8))


@pytest.mark.parametrize("tokens", [MIN_TOKENS, MIN_TOKENS + 5 * STRIDE + 7, 20 * MIN_TOKENS])
def test_heldout_loss_at_each_depth_is_of_the_same_text(tokens: int) -> None:
    stream = np.random.default_rng(0).integers(0, 8, tokens).astype(np.uint16)
    losses = heldout_losses(Unigram(), stream, 40, "cpu").view(DEPTHS, STRIDE)
    for depth in losses:
        assert torch.allclose(depth, losses[0], atol=1e-4)
    separate = torch.nn.functional.cross_entropy(
        torch.arange(8.0).expand(CONTEXT, 8),
        torch.from_numpy(stream[1 : CONTEXT + 1].astype(np.int64)), reduction="none",
    ).view(DEPTHS, STRIDE)  # fmt: skip
    assert not torch.allclose(separate[0].mean(), separate[1].mean(), atol=1e-4)


@pytest.mark.integration
def test_a_small_run_trains_exports_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nano, "SHAPES", {role: Shape(hidden=64, layers=1) for role in SHAPES})
    corpus = tmp_path / "corpus.txt"
    rng = np.random.default_rng(0)
    words = ["sea", "lamp", "boat", "home", "dusk", "old", "man", "spoke", "nobody", "wind"]
    corpus.write_text(
        " ".join(rng.choice(words, 30_000)) + "\x0c" + " ".join(rng.choice(words, 6_000))
    )
    base = [
        "--corpus",
        str(corpus),
        "--work",
        str(tmp_path / "work"),
        "--out",
        str(tmp_path / "out"),
        *("--student-tokens", "4096", "--draft-tokens", "4096"),
    ]
    assert nano.main([*base, "--target-tokens", "8192"]) == 0
    first = json.loads(capsys.readouterr().out)
    # A finished run given again has nothing left to train, and reports the same.
    assert nano.main([*base, "--target-tokens", "8192"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["heldout_loss"] == first["heldout_loss"]
    # A longer one goes on from there and learns.
    assert nano.main([*base, "--target-tokens", "40960"]) == 0
    longer = json.loads(capsys.readouterr().out)
    assert longer["heldout_loss"]["target"]["mean"] < first["heldout_loss"]["target"]["mean"]
    for role in SHAPES:
        assert (tmp_path / "out" / role / "config.json").exists()
        assert list((tmp_path / "out" / role).glob("*.safetensors"))


def test_a_bad_corpus_path_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nano.main(["--corpus", str(tmp_path / "no"), "--work", str(tmp_path / "work")]) == 2
    assert capsys.readouterr().err.startswith("error: corpus: no text file")
