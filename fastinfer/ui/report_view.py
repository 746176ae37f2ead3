"""The report view: verdict, figures, table and charts of a measuring tab in one gr.HTML.

As in the stream view, the skeleton is constant and the script sets all text by textContent.
"""

from __future__ import annotations

import gradio as gr

from fastinfer.ui.report import Report
from fastinfer.ui.stream_view import ASSETS, plotly_url
from fastinfer.ui.words import view_words

TABS_STYLE = ASSETS / "tabs.css"
SKELETON = (
    '<section class="fi-view fi-report" data-state="idle">'
    '<header class="fi-state"><span class="fi-dot"></span><strong data-part="title"></strong>'
    '<span class="fi-run" data-part="detail"></span></header>'
    '<div class="fi-bar" role="progressbar" aria-label="Progress" aria-valuemin="0" '
    'aria-valuemax="100" hidden><i></i></div>'
    '<div class="fi-verdict" hidden><strong></strong><span></span></div>'
    '<dl class="fi-figures" hidden></dl>'
    '<div class="fi-reports"></div>'
    '<div class="fi-table" tabindex="0" role="region" aria-label="Table" hidden><table></table>'
    '</div><ul class="fi-notes" data-part="notes" hidden></ul>'
    '<details class="fi-more" hidden><summary></summary><ul class="fi-notes"></ul></details>'
    '<p class="fi-links" hidden><a></a></p>'
    '<p class="fi-summary" role="status" aria-live="polite"></p>'
    "</section>"
)


def report_view(first: Report, elem_id: str) -> gr.HTML:
    """A view of reports; its value is `Report.to_json()`."""
    return scripted_view(first.to_json(), elem_id, SKELETON, "report_view.js")


def scripted_view(value: str, elem_id: str, skeleton: str, script: str) -> gr.HTML:
    """A view that a script of ours fills, what such scripts share in front of it."""
    parts = ("words.js", "plots.js", script)
    return gr.HTML(
        value=value,
        elem_id=elem_id,
        html_template=skeleton,
        js_on_load="\n".join((ASSETS / part).read_text(encoding="utf-8") for part in parts),
        apply_default_css=False,
        words=view_words(),
        head=f'<script src="{plotly_url()}"></script>',
    )
