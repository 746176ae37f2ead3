"""A press on who drafts leaves the output's law alone, and one on the target does not.

Real caches of tiny random models over three tokens, against the full-cache target's law by
enumeration (four tokens after the prompt). Seeds and thresholds as in test_output_law.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from pressed import tiny_llama
from torch import Tensor
from toys import Toy, chi_square_p

from fastinfer.config import DecodeConfig, GammaConfig
from fastinfer.events import Role
from fastinfer.models.compression import CompressionPlan
from fastinfer.models.session import Session
from fastinfer.models.transformer import TransformerDecoder, from_state_dict
from fastinfer.presses import PRESSES

pytestmark = pytest.mark.statistical

SAMPLES = 800
P_LOW = 1e-4
P_MUTANT = 1e-9
VOCAB = 3
PROMPT = (0, 1, 2, 2, 1, 0, 1, 1, 2, 0)


def decoder(seed: int) -> TransformerDecoder:
    model = tiny_llama(seed, context=32, vocab=VOCAB, layers=1)
    return from_state_dict(
        model.config.to_dict(), model.state_dict(), torch.float32, torch.device("cpu")
    )


class SessionLM(Session):
    """A session that can start afresh, as the toys do; `logits` are those of the full cache."""

    def __init__(self, of: TransformerDecoder, role: Role, plan: CompressionPlan | None) -> None:
        super().__init__(of, role, VOCAB, plan=plan)
        self.plan = plan

    def fresh(self) -> SessionLM:
        assert isinstance(self.decoder, TransformerDecoder)
        return SessionLM(self.decoder, self.role, self.plan)

    def logits(self, prefix: Sequence[int]) -> Tensor:
        return Session(self.decoder, self.role, VOCAB).forward(list(prefix), 1)[0]


def squeezed(press: str) -> CompressionPlan:
    """Three of ten entries stay, compressed again with every second token."""
    return CompressionPlan(
        press=PRESSES[press], budget=3, interval=2, num_sinks=1, num_recent=1
    )  # fmt: skip


def p_value(method: str, pressed_roles: set[str], press: str = "streaming") -> float:
    models = [
        SessionLM(decoder(seed), role, squeezed(press) if role.value in pressed_roles else None)
        for seed, role in ((3, Role.TARGET), (4, Role.DRAFT), (5, Role.INTERMEDIATE))
    ]
    toy = Toy(
        method, *models, prompt=PROMPT, max_new_tokens=4,  # type: ignore[arg-type]
        gamma=GammaConfig(policy="constant", initial=2),
    )  # fmt: skip
    return chi_square_p(toy, SAMPLES)


@pytest.mark.parametrize("press", ["streaming", "snapkv"])
@pytest.mark.parametrize(
    ("method", "roles"),
    [
        ("speculative", {"draft"}),
        ("cascade", {"intermediate"}),
        ("cascade", {"draft", "intermediate"}),
    ],
)
def test_a_press_on_who_drafts_keeps_the_law(method: str, roles: set[str], press: str) -> None:
    assert p_value(method, roles, press) > P_LOW


@pytest.mark.parametrize("method", ["autoregressive", "speculative", "cascade"])
def test_a_press_on_the_target_does_not(method: str) -> None:
    assert p_value(method, {"target"}) < P_MUTANT


@pytest.mark.parametrize("roles", ["draft", "intermediate", "draft,intermediate", "target"])
def test_the_badge_says_which(roles: str) -> None:
    """The badge of a request is what the tests above find of the same roles."""
    config = DecodeConfig.from_mapping(
        {"method": "cascade", "press": "streaming", "press_on": roles}
    )
    assert config.lossless is (roles != "target")
