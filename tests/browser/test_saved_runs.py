"""A run as a link and as files, examples that set several fields, and the page in Chinese."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fastinfer.ui.records import saved as saved_event
from tests.browser.acts import NASTY, Open, press_fields, run, set_number
from tests.browser.fake_engine import FAKE_SEED, TRAPS, origins_of
from tests.browser.harness import FinishedRun, Site, Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

BREAKOUT = NASTY + "</script><script>window.pwned = 2</script><!--"


def saved(opened: Visit, kind: str) -> str:
    """Press a button that saves; the file's text."""
    with opened.page.expect_download() as started:
        opened.page.click(f"[data-save={kind}]")
    assert started.value.suggested_filename == f"fastinfer-run.{kind}"
    return Path(started.value.path()).read_bytes().decode("utf-8")


def test_json_holds_the_prompt_and_the_events(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    assert opened.page.is_disabled("[data-save=json]")  # nothing has run yet
    opened.page.fill("#prompt textarea", NASTY)
    run(opened)
    kept = json.loads(saved(opened, "json"))
    assert kept["prompt"] == NASTY
    kinds = [event["type"] for event in kept["events"]]
    assert kinds[0] == "started" and kinds[-1] == "finished"
    steps = [event for event in kept["events"] if event["type"] == "step"]
    assert steps == [saved_event(step) for step in site.engine.steps]


def test_csv_has_a_row_per_token_and_every_text_can_be_read_back(finished: FinishedRun) -> None:
    opened = finished.visit
    rows = list(csv.DictReader(io.StringIO(saved(opened, "csv"), newline="")))
    assert [json.loads(row["text"]) for row in rows] == list(islice(cycle(TRAPS), 160))
    assert [row["origin"] for row in rows] == origins_of("cascade", 160)
    refused = [row for row in rows if row["refused_text"]]
    assert {row["origin"] for row in refused} == {"resampled"}
    assert rows[1]["draft_prob"] == "0.625" and rows[0]["draft_prob"] == ""


def test_a_saved_replay_is_a_page_of_its_own_that_shows_text_as_text(
    site: Site, visit: Open, tmp_path: Path
) -> None:
    opened = visit(site.url)
    opened.page.fill("#prompt textarea", BREAKOUT)
    run(opened)
    file = tmp_path / "replay.html"
    file.write_text(saved(opened, "html"), encoding="utf-8")
    asked: list[str] = []
    errors: list[str] = []
    replay = opened.page.context.new_page()
    replay.on("request", lambda request: asked.append(request.url))
    replay.on("pageerror", lambda error: errors.append(str(error)))
    replay.emulate_media(reduced_motion="reduce")  # shown whole, at once
    replay.goto(file.as_uri())
    replay.wait_for_selector("#now:has-text('160 of 160 tokens')")
    texts = replay.eval_on_selector_all(".fi-token", "all => all.map(s => s.textContent)")
    assert texts == list(islice(cycle(TRAPS), 160))
    assert replay.eval_on_selector("#prompt", "node => node.textContent") == BREAKOUT
    assert replay.evaluate("window.pwned") is None and errors == []
    assert replay.query_selector_all("#text img, #text script") == []
    assert asked == [file.as_uri()]
    legend = replay.eval_on_selector_all("#legend li", "all => all.map(li => li.innerText)")
    origins = origins_of("cascade", 160)
    assert sorted(legend) == sorted(f"{o} {origins.count(o)}" for o in set(origins))
    replay.evaluate(
        "(() => { const time = document.getElementById('time');"
        " time.value = 0; time.dispatchEvent(new Event('input')) })()"
    )
    assert len(replay.query_selector_all(".later")) == 160


def test_a_replay_unrolls_by_itself_and_can_be_held(finished: FinishedRun, tmp_path: Path) -> None:
    opened = finished.visit
    file = tmp_path / "replay.html"
    file.write_text(saved(opened, "html"), encoding="utf-8")
    replay = opened.page.context.new_page()
    replay.goto(file.as_uri())
    replay.wait_for_selector(
        "#now:has-text('160 of 160 tokens')"
    )  # it allows no eval, so no function
    assert replay.inner_text("#play") == "Play"
    replay.select_option("#pace", "0.25")
    replay.click("#play")
    replay.click("#play")
    held = replay.inner_text("#now")
    assert not held.startswith("160")
    replay.wait_for_timeout(200)
    assert replay.inner_text("#now") == held


def test_a_link_fills_the_form_with_the_run_and_its_seed(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    opened.page.fill("#prompt textarea", BREAKOUT)
    opened.page.check("#method input[value=speculative]")
    set_number(opened, "temperature", "0.3")
    press_fields(opened, press_interval="24")
    opened.page.get_by_label("target", exact=True).uncheck()
    opened.page.get_by_label("draft", exact=True).first.check()
    run(opened)
    first = site.engine.requests[-1]
    opened.page.click("[data-save=link]")
    opened.page.wait_for_function("location.hash.includes('prompt=')")
    again = visit(site.url, fragment=str(opened.page.evaluate("location.hash")))
    again.page.wait_for_function(
        "document.querySelector('#prompt textarea').value.startsWith('${x}')"
    )
    assert again.page.input_value("#prompt textarea") == BREAKOUT
    run(again)
    sampling = dataclasses.replace(first.sampling, seed=FAKE_SEED)
    assert first.compression is not None and first.compression.apply_to == ("draft",)
    assert site.engine.requests[-1] == dataclasses.replace(first, sampling=sampling)
    assert again.page.evaluate("window.pwned") is None


def test_an_example_sets_several_fields(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    opened.page.click("button:has-text('Copy a verse')")
    opened.page.wait_for_function(
        "document.querySelector('#method input[value=speculative]').checked"
        " && document.querySelector('#prompt textarea').value.includes('miller')"
    )
    run(opened)
    asked = site.engine.requests[-1]
    assert (asked.method, asked.draft) == ("speculative", "prompt-lookup")
    assert asked.sampling.temperature == 0
    opened.page.click("#cache > button")
    opened.page.click("button:has-text('A long chapter')")
    opened.page.wait_for_function("document.querySelector('#press input').value.includes('snapkv')")
    again = len(site.engine.requests)
    opened.page.click("#generate")
    opened.page.wait_for_selector(".fi-view[data-law=lossy][data-state=done]")
    asked = site.engine.requests[-1]
    assert len(site.engine.requests) > again
    assert asked.draft == "model" and asked.compression is not None and not asked.lossless


def test_labels_speak_chinese_to_those_who_read_it(site: Site, chromium: Browser) -> None:
    context = chromium.new_context(locale="zh-CN")
    page = context.new_page()
    page.goto(site.url)
    page.wait_for_selector("#generate:has-text('生成')")
    assert "温度" in page.inner_text("#temperature")
    page.wait_for_function("document.querySelector('.fi-view dt')?.textContent === '首词元'")
    assert "级联:草稿、中间层、目标" in page.inner_text("#method")
    page.click("#generate")
    page.wait_for_selector(".fi-view[data-state=done]")
    assert page.inner_text(".fi-state strong") == "完成:160 个词元,达到上限。"
    # Words of a model that are words of the page too stay as they are.
    assert " The sea" in (page.text_content(".fi-output") or "")
    page.get_by_role("tab", name="比较", exact=True).click()
    assert "两种方式,同一文本" in page.inner_text("#compare-view")
    page.fill("#compare-tokens input", "20")
    page.click("#compare-start")
    page.wait_for_selector("#compare-view .fi-view[data-state=done]")
    assert page.inner_text("#compare-view .fi-verdict[data-tone=good] strong") == (
        "A 与 B 的文本相同"
    )
    context.close()
