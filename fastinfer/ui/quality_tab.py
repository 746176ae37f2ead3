"""The Quality tab: what each press costs in perplexity and saves in memory, live."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from fastinfer.config import PRESS_NAMES, ConfigError, DecodeConfig
from fastinfer.engine import Engine
from fastinfer.evaluation.environment import environment
from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.perplexity import window_loss
from fastinfer.evaluation.press_grid import Runs, Variant
from fastinfer.evaluation.press_grid import report as results_of
from fastinfer.evaluation.prompts import load_prompts
from fastinfer.evaluation.windows import Document, Window, coder_of, cut
from fastinfer.events import Role
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.job import Job, Start, buttons
from fastinfer.ui.measuring import MeasuringHandler
from fastinfer.ui.quality_report import report
from fastinfer.ui.report import Measuring, Report
from fastinfer.ui.report_view import report_view
from fastinfer.ui.space import LONGEST_SECONDS
from fastinfer.ui.variant import count
from fastinfer.ui.words import field_words, word

VIEW = "quality-view"
MOST_BYTES = 5_000_000  # of a file: more is never read into windows here
RATIOS = (0.25, 0.5, 0.75)
OPENING_PRESSES = ("streaming", "snapkv", "random")
INTRO = (
    "The target reads a text, the press acts as it does in decoding, and each further token "
    "counts (half of each window). Bits per byte do not depend on the tokenizer."
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to measure."""

    documents: tuple[Document, ...]
    corpus: str
    variants: tuple[Variant, ...]
    context: int
    windows: int
    interval: int | None


def read_form(
    file: str | None, presses: list[str], ratios: list[float], context: Any, windows: Any,
    interval: Any,
) -> Asked:  # fmt: skip
    """The form's values; raises `ConfigError`."""
    context, windows = count("context", context, 2), count("windows", windows, 1)
    every = None if interval in (None, 0) else count("press_interval", interval, 1)
    variants = [Variant(name=UNCOMPRESSED, config=DecodeConfig(method="autoregressive"))]
    for press in presses:
        for ratio in ratios:
            config = DecodeConfig.from_mapping(
                {
                    "method": "autoregressive", "press": press, "press_on": "target",
                    "compression_ratio": ratio, "press_interval": every,
                }
            )  # fmt: skip
            variants.append(Variant(name=f"{press}@{ratio:g}", config=config))
    return Asked(
        documents=tuple(read_text(file)),
        corpus=Path(file).name if file else "bundled prose",
        variants=tuple(variants),
        context=context,
        windows=windows,
        interval=every,
    )


def read_text(file: str | None) -> list[Document]:
    """A file's text, or the bundled examples; raises `ConfigError`."""
    if not file:
        return [Document(name=each.name, text=each.text) for each in load_prompts("examples")]
    path = Path(file)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError("corpus", f"must have at most {MOST_BYTES / 1e6:.0f} MB")
        return [Document(name=path.name, text=path.read_text(encoding="utf-8-sig"))]
    except OSError as error:
        raise ConfigError("corpus", f"{path.name}: {error.strerror or 'no file'}") from error
    except UnicodeDecodeError as error:
        raise ConfigError("corpus", f"{path.name} must be a text in UTF-8") from error


def measure(engine: Engine, asked: Asked) -> Generator[Measuring, None, None]:
    """Every window by every variant before the next window, so that all points come at once."""
    windows, notes = cut(
        asked.documents,
        coder_of(engine.tokenizer),
        context=asked.context,
        stride=max(1, asked.context // 2),
        max_windows=asked.windows,
    )
    variants = []
    for variant in asked.variants:
        try:
            engine.check([0], variant.config)
            variants.append(variant)
        except ConfigError as error:
            notes.append(f"{variant.name} is left out: {error}")
    runs: Runs = {variant.name: [] for variant in variants}
    total = len(windows) * len(variants)
    done, document = 0, None
    yield Measuring(done=0, total=total, document=None)
    for number, window in enumerate(windows, start=1):
        for variant in variants:
            session = engine.session(Role.TARGET, variant.config)
            runs[variant.name].append(window_loss(session, window, asked.interval))
            done += 1
            if variant is variants[-1]:
                document = _document(engine, asked, windows[:number], variants, runs, notes)
            yield Measuring(done=done, total=total, document=document, finished=done == total)


def _document(
    engine: Engine,
    asked: Asked,
    windows: list[Window],
    variants: list[Variant],
    runs: Runs,
    notes: list[str],
) -> dict[str, Any]:
    info = engine.info
    return {
        "kind": "fastinfer-ppl",
        "version": 1,
        "environment": environment(),
        "preset": info.preset,
        "role": Role.TARGET.value,
        "model": info.models[Role.TARGET],
        "dtype": info.dtype,
        "device": info.device,
        "corpus": {
            "name": asked.corpus,
            "documents": sorted({window.document for window in windows}),
        },
        "plan": {
            "context": asked.context,
            "stride": max(1, asked.context // 2),
            "interval": asked.interval,
            "presses": [v.name for v in variants if v.name != UNCOMPRESSED],
        },
        "notes": notes,
        "results": results_of(variants, runs),
    }


def quality_handler(backstage: Backstage) -> MeasuringHandler[Asked]:
    """What serves the tab."""
    return MeasuringHandler(
        backstage, read=read_form, measure=measure, report=report,
        first=Report(state="running", title="Cutting the text into windows"),
    )  # fmt: skip


def quality_tab(backstage: Backstage) -> None:
    """Build the tab in the current Blocks."""
    handler = quality_handler(backstage)
    with gr.Row(equal_height=False, elem_classes="fi-page"):
        with gr.Column(scale=2, min_width=330, elem_classes="fi-form"):
            presses, ratios = _variants()
            (start,), stop, status = buttons("measure", "quality")
            numbers = _numbers()
            file = gr.File(
                label=word("file"), file_types=[".txt", ".md"], height=150, elem_id="quality-file"
            )
        with gr.Column(scale=5, min_width=330):
            view = report_view(Report(title="What a smaller cache costs", detail=INTRO), VIEW)
    begin = Start(
        button=start, check=handler.check, run=handler.run,
        duration=lambda *values: LONGEST_SECONDS,
    )  # fmt: skip
    inputs = [file, presses, ratios, *numbers]
    Job(starts=(begin,), stop=stop, status=status, inputs=inputs, view=view).wire()


def _variants() -> tuple[Component, Component]:
    presses = gr.CheckboxGroup(
        list(PRESS_NAMES), value=list(OPENING_PRESSES), label=word("presses"),
        elem_id="quality-presses",
    )  # fmt: skip
    ratios = gr.CheckboxGroup(
        [(f"{100 * ratio:g} %", ratio) for ratio in RATIOS],
        value=list(RATIOS), label=word("ratios"), elem_id="quality-ratios",
    )  # fmt: skip
    return presses, ratios


def _numbers() -> list[Component]:
    with gr.Row():
        return [
            gr.Number(
                value, **field_words(key), step=step, min_width=90, elem_id=f"quality-{name}"
            )
            for key, name, value, step in (
                ("window", "context", 256, 64), ("windows", "windows", 8, 1),
                ("every", "interval", 64, 16),
            )
        ]  # fmt: skip
