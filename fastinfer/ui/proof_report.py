"""A proof -> what the Prove it tab shows, as plain values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastinfer.config import DecodeConfig
from fastinfer.evaluation.goodness import P_LOW
from fastinfer.evaluation.proof import Proof
from fastinfer.ui import labels
from fastinfer.ui.report import (
    Chart,
    Figure,
    Report,
    Table,
    Verdict,
    chart_layout,
    plain_label,
    shown,
)

BARS = 18


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be proven."""

    prompt: str
    config: DecodeConfig
    draws: int
    wrong: bool


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A proof so far, with the texts of its likeliest tokens."""

    proof: Proof
    texts: dict[int, str]


def likeliest(proof: Proof) -> list[int]:
    """The tokens to show, by law and draws together."""
    shares = proof.counts / proof.fit.num_draws
    wanted = (proof.law.double() + shares).topk(min(BARS, len(proof.law))).indices
    return [int(token) for token in wanted if proof.law[token] > 0 or proof.counts[token] > 0]


def texts_of(tokenizer: Any, ids: list[int]) -> dict[int, str]:
    """What each token says."""
    return {token: str(tokenizer.decode([token])) for token in ids}


def report(asked: Asked, drawn: Drawn) -> Report:
    """What the tab shows of a proof so far."""
    proof = drawn.proof
    done = proof.fit.num_draws >= asked.draws
    made = f"{proof.fit.num_draws:,} of {asked.draws:,} draws"
    return Report(
        state="done" if done else "running",
        title=f"{proof.fit.num_draws:,} draws" if done else made,
        detail=_what(asked),
        progress=proof.fit.num_draws / asked.draws,
        verdict=_verdict(asked, proof) if done else None,
        figures=_figures(proof),
        table=_table(drawn),
        charts=(_chart(drawn),),
        notes=_notes(asked, proof),
    )


def _what(asked: Asked) -> str:
    rule = "wrong rule" if asked.wrong else f"{asked.config.rule} rule"
    return f"{asked.config.method} · {rule} · temperature {asked.config.sampling.temperature:g}"


def _verdict(asked: Asked, proof: Proof) -> Verdict:
    fit = proof.fit
    if fit.passed:
        return Verdict(
            tone="good",
            text="The draws follow the target's own law",
            more=f"A perfect sampler fits as badly as this, or worse, {_chance(fit.p_value)}.",
        )
    why = "as it should be: the rule is wrong on purpose" if asked.wrong else _blame(asked)
    return Verdict(
        tone="bad",
        text="The draws follow another law than the target's",
        more=f"A perfect sampler fits as badly as this {_chance(fit.p_value)}; {why}.",
    )


def _blame(asked: Asked) -> str:
    if not asked.config.lossless:
        return f"this configuration is lossy: {asked.config.lossless_reason}"
    return "nothing here explains it, so please report it"


def _chance(p: float) -> str:
    if p >= 0.01:
        return f"in {100 * p:.0f} samples of 100"
    return f"in fewer than 1 sample of {10 ** min(12, max(2, _zeros(p))):,}"


def _zeros(p: float) -> int:
    zeros = 0
    while zeros < 12 and p < 10.0 ** -(zeros + 1):
        zeros += 1
    return zeros


def _figures(proof: Proof) -> tuple[Figure, ...]:
    fit = proof.fit
    draws = fit.num_draws
    return (
        Figure(
            name="Total variation",
            value=f"{100 * fit.total_variation:.2f} %",
            help="Half the sum of |share drawn - probability| over all tokens.",
        ),
        Figure(
            name="Noise floor",
            value=f"{100 * fit.floor:.2f} – {100 * fit.floor_high:.2f} %",
            help="What a perfect sampler has with so many draws: on average, and what only one in "
            "a hundred exceeds.",
        ),
        Figure(
            name="p-value",
            value=f"{fit.p_value:.3f}" if fit.p_value >= 0.001 else f"{fit.p_value:.0e}",
            help=f"Chi-square over {fit.num_bins} bins of 5 expected draws or more; below "
            f"{P_LOW:g} the law is refuted.",
        ),
        Figure(
            name="Drafts that stood",
            value=labels.percent(proof.num_accepted / draws),
            help="The rest of the draws came from the rule's other half, after a rejection.",
        ),
    )


def _notes(asked: Asked, proof: Proof) -> tuple[str, ...]:
    notes = [
        f"A token is drafted and verified as in decoding, once for each of the "
        f"{asked.draws:,} seeds; the models' laws after the prompt are computed once and kept.",
    ]
    if not proof.num_tested:
        notes.append("Nothing was drafted here, so no rule was put to the test.")
    notes += [
        f"The press left {done.entries_after} of {done.entries_before} entries of the "
        f"{done.role.value}'s cache."
        for done in proof.compressed
    ]
    if asked.config.compression is not None and not proof.compressed:
        notes.append("The prompt is too short for the press: it dropped nothing.")
    return tuple(notes)


def _chart(drawn: Drawn) -> Chart:
    proof = drawn.proof
    names = [plain_label(shown(text)) for text in drawn.texts.values()]
    places = list(range(len(names)))
    law = [100 * float(proof.law[token]) for token in drawn.texts]
    share = [100 * float(proof.counts[token]) / proof.fit.num_draws for token in drawn.texts]
    common = {"type": "bar", "x": places, "customdata": names}
    return Chart(
        name="law",
        title="The likeliest next tokens",
        note="The target's own law, and the share of the draws.",
        traces=(
            {
                **common, "y": law, "name": "target's law",
                "marker": {"color": "var(--fi-line-target)"},
                "hovertemplate": "%{customdata} %{y:.2f} %<extra>law</extra>",
            },
            {
                **common, "y": share, "name": "drawn",
                "marker": {"color": "var(--fi-line-draft)"},
                "hovertemplate": "%{customdata} %{y:.2f} %<extra>drawn</extra>",
            },
        ),
        layout=chart_layout(
            y="% of all tokens", height=300, barmode="group", bargap=0.25,
            xaxis={"showgrid": False, "tickvals": places, "ticktext": names, "tickangle": -40},
        ),
    )  # fmt: skip


def _table(drawn: Drawn) -> Table:
    proof = drawn.proof
    draws = proof.fit.num_draws
    rows = tuple(
        (
            shown(text),
            f"{100 * float(proof.law[token]):.2f} %",
            f"{100 * float(proof.counts[token]) / draws:.2f} %",
            f"{float(proof.law[token]) * draws:,.1f}",
            f"{int(proof.counts[token]):,}",
        )
        for token, text in list(drawn.texts.items())[:10]
    )
    return Table(heads=("token", "law", "drawn", "expected", "came"), rows=rows)
