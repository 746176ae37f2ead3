"""Charts: plain data, colours that exist in both themes, and a place for every number."""

from __future__ import annotations

import json
import re

import pytest

from fastinfer.config import DecodeConfig
from fastinfer.events import Origin
from fastinfer.ui.charts import Chart, live_charts
from fastinfer.ui.records import Recorder
from fastinfer.ui.skeleton import skeleton
from fastinfer.ui.stream_view import STYLES, plotly_js, plotly_url, stream_view
from fastinfer.ui.theme import page_settings
from tests.browser.fake_engine import FakeEngine

STYLE = "".join(path.read_text(encoding="utf-8") for path in STYLES)
NAMES = [chart.name for chart in live_charts()]


def shown_by_a_run() -> tuple[set[str], dict[str, set[int]]]:
    """Places that a run writes to, and traces that it extends."""
    config = DecodeConfig.from_mapping(
        {"method": "cascade", "max_new_tokens": 40, "press": "knorm", "press_interval": 8}
    )
    recorder = Recorder(config)
    text = recorder.open("id", "a")
    for message in FakeEngine().stream("once", config):
        text += recorder.add(message)
    places: set[str] = set()
    traces: dict[str, set[int]] = {}
    for line in (text + recorder.figures()).splitlines():
        record = json.loads(line)
        places |= set(record.get("text", {}))
        for name, points in record.get("points", {}).items():
            traces.setdefault(name, set()).update(point[0] for point in points)
    return places, traces


@pytest.mark.parametrize("chart", live_charts(), ids=NAMES)
def test_a_chart_is_json_with_empty_traces(chart: Chart) -> None:
    spec = json.loads(json.dumps(chart.to_mapping()))
    assert spec["name"] == chart.name
    for trace in spec["traces"]:
        assert trace["x"] == [] and trace["y"] == []
    assert "template" not in spec["layout"]  # 6 kB of defaults that we don't use


@pytest.mark.parametrize("chart", live_charts(), ids=NAMES)
def test_every_colour_is_defined_for_the_light_theme(chart: Chart) -> None:
    names = set(re.findall(r"var\((--fi-[\w-]+)\)", json.dumps(chart.to_mapping())))
    assert names
    for name in names:
        assert re.search(rf"\.fi-view \{{[^}}]*{name}:", STYLE), name


def test_line_colours_change_with_the_dark_theme() -> None:
    dark = re.search(r"\.dark \.fi-view \{([^}]*)\}", STYLE)
    assert dark is not None
    for name in ("--fi-line-draft", "--fi-line-intermediate", "--fi-line-target", "--fi-grid"):
        assert name in dark[1]


def test_every_point_of_a_run_has_its_trace() -> None:
    _, traces = shown_by_a_run()
    charts = {chart.name: chart for chart in live_charts()}
    assert set(traces) == set(charts)
    for name, used in traces.items():
        assert used <= set(range(len(charts[name].traces)))


def test_every_place_of_the_skeleton_is_written_by_a_run_and_the_other_way_round() -> None:
    places, _ = shown_by_a_run()
    assert set(re.findall(r'data-text="([^"]+)"', skeleton(live_charts()))) == places


def test_the_skeleton_is_safe_for_gradios_template_engine() -> None:
    markup = skeleton(live_charts())
    assert "${" not in markup and "{{" not in markup and "<script" not in markup


def test_every_origin_has_a_colour_and_a_line_of_its_own() -> None:
    cues = set()
    for origin in Origin:
        rule = re.search(rf"^\.fi-{origin} \{{([^}}]*)\}}", STYLE, re.MULTILINE)
        assert rule is not None, origin
        assert "background: var(--fi-" in rule[1]
        cues.add(re.sub(r"background:[^;]*;", "", rule[1]).strip())
    assert len(cues) == len(Origin)


def test_plotly_comes_from_the_installed_wheel() -> None:
    assert plotly_js().stat().st_size > 1_000_000


def test_the_script_that_is_fetched_early_is_the_one_that_the_view_loads() -> None:
    view = stream_view((), "view")
    assert view.head is not None and plotly_url() in view.head
    assert f'rel="preload" as="script" href="{plotly_url()}"' in page_settings()["head"]
