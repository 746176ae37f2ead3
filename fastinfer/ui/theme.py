"""How the page looks, and the settings that Gradio 6 takes at launch instead of in Blocks.

Colours of origins and chart lines live in assets/style.css, for the light and the dark theme.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from fastinfer.ui.report_view import TABS_STYLE
from fastinfer.ui.stream_view import STYLES, plotly_js
from fastinfer.ui.words import translations

SYSTEM_FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def theme() -> gr.themes.Base:
    """Gradio's own theme in quiet colours and the system's fonts, so that no font is fetched."""
    return gr.themes.Default(
        primary_hue="blue",
        secondary_hue="blue",
        neutral_hue="slate",
        radius_size="sm",
        font=SYSTEM_FONTS,
        font_mono=MONO_FONTS,
    ).set(  # Gradio's own greys and blues miss a contrast of 4.5
        body_text_color_subdued="*neutral_500",
        body_text_color_subdued_dark="*neutral_400",
        block_info_text_color="*neutral_500",
        block_info_text_color_dark="*neutral_400",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_hover_dark="*primary_700",
        color_accent="*primary_600",
    )


def page_settings() -> dict[str, Any]:
    """Arguments for `gr.mount_gradio_app`: looks, files that may be served, what is off."""
    return {
        "theme": theme(),
        "css_paths": [str(path) for path in (*STYLES, TABS_STYLE)],
        "allowed_paths": [str(plotly_js())],
        "ssr_mode": False,
        "i18n": translations(),
        "run_history": False,  # it would keep visitors' prompts in their browser
        "footer_links": ["settings"],
        "show_error": False,  # our own errors carry their words; others would show internals
    }
