"""The Prove it tab: thousands of next tokens against the target's own law, and a wrong rule that
shows that the test has teeth."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import gradio as gr
from gradio.components import Component

from fastinfer.config import RULES, DecodeConfig
from fastinfer.evaluation.proof import prove
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.job import Job, Start, Values, buttons, checked, page_worker, play_report
from fastinfer.ui.proof_report import Asked, Drawn, likeliest, report, texts_of
from fastinfer.ui.report import Report
from fastinfer.ui.report_view import report_view
from fastinfer.ui.roles import RoleField
from fastinfer.ui.run import TextEngine
from fastinfer.ui.space import LONGEST_SECONDS
from fastinfer.ui.throttle import Worker
from fastinfer.ui.variant import drafting_kinds, read_variant, seed_of, variant_fields, whole
from fastinfer.ui.words import field_words, word

VIEW = "proof-view"
PROMPT = (
    "The old man looked at the sea and said nothing for a long time. The boats had not come home, "
    "and the light was going. At last he turned to the boy who stood beside him, and said"
)
DRAWS = 4000
MOST_TOKENS = 256  # of a prompt: short is all that it takes
INTRO = (
    "Draws thousands of next tokens with the real rule, a fresh seed each, and compares them with "
    "the target's own law. A lossless configuration passes; a wrong rule, or a press on the "
    "target's own cache, does not."
)


class ProofHandler:
    """Serves the tab."""

    def __init__(self, engine: TextEngine, backstage: Backstage) -> None:
        self._engine = engine
        self._backstage = backstage
        self._worker: Worker[Drawn] = page_worker()

    def read(self, prompt: str | None, *values: Any) -> Asked:
        """The form's values; raises `ConfigError`."""
        draws, wrong, temperature, seed, rule, *variant = values
        options = read_variant(*variant).options
        common = {"temperature": whole(temperature), "seed": seed_of(seed) or 0, "rule": rule}
        config = DecodeConfig.from_mapping({**common, **options})
        self._engine.check(prompt or "", config)
        return Asked(prompt=prompt or "", config=config, draws=int(draws or 0), wrong=bool(wrong))

    def check(self, *values: Any) -> Asked:
        """As `read`, a slip becoming a toast."""
        return checked(self.read, *values)

    def run(self, *values: Any) -> Values:
        """Draw, and show how it stands."""
        asked = self.check(*values)
        first = Report(state="running", title="Reading the prompt", detail="with every model")
        yield from play_report(
            self._worker, self._job(asked), first, lambda drawn: report(asked, drawn)
        )

    def _job(self, asked: Asked) -> Generator[Drawn, None, None]:
        with self._backstage.turn() as engine:
            ids = engine.check(asked.prompt, asked.config)[-MOST_TOKENS:]
            for proof in prove(engine, ids, asked.config, draws=asked.draws, wrong=asked.wrong):
                yield Drawn(proof=proof, texts=texts_of(engine.tokenizer, likeliest(proof)))


def proof_tab(engine: TextEngine, backstage: Backstage) -> tuple[RoleField, ...]:
    """Build the tab in the current Blocks; gives the fields that depend on the models."""
    handler = ProofHandler(engine, backstage)
    with gr.Row(equal_height=False, elem_classes="fi-page"):
        with gr.Column(scale=2, min_width=330, elem_classes="fi-form"):
            prompt = gr.Textbox(PROMPT, label=word("prompt"), lines=3, elem_id="proof-prompt")
            (start,), stop, status = buttons("prove", "proof")
            fields = _fields()
            with gr.Group():
                variant = variant_fields("proof", set(engine.info.models), drafting_kinds)
        with gr.Column(scale=5, min_width=330):
            view = report_view(Report(title="Is the text the target's own?", detail=INTRO), VIEW)
    begin = Start(
        button=start, check=handler.check, run=handler.run,
        duration=lambda *values: LONGEST_SECONDS // 2,
    )  # fmt: skip
    inputs = [prompt, *fields, *variant.inputs]
    Job(starts=(begin,), stop=stop, status=status, inputs=inputs, view=view).wire()
    return variant.following


def _fields() -> list[Component]:
    with gr.Row():
        draws = gr.Number(
            DRAWS, label=word("draws"), step=1000, min_width=90, elem_id="proof-draws"
        )
        temperature = gr.Number(
            0.7, label=word("temperature"), step=0.1, min_width=90, elem_id="proof-temperature"
        )
        seed = gr.Textbox("1", label=word("seed"), min_width=90, elem_id="proof-seed")
    with gr.Group():
        wrong = gr.Checkbox(False, **field_words("wrong"), elem_id="proof-wrong")
        rule = gr.Radio(list(RULES), value="residual", label=word("rule"), elem_id="proof-rule")
    return [draws, wrong, temperature, seed, rule]
