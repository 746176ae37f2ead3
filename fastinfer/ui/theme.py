"""How the page looks, and the settings that Gradio 6 takes at launch instead of in Blocks.

Colours of origins and chart lines live in assets/style.css, for the light and the dark theme.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from fastinfer.ui.report_view import TABS_STYLE
from fastinfer.ui.stream_view import STYLES, plotly_js, plotly_url
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
        # Names of fields stand out from their help, and corners are those of the views.
        block_title_text_color="*neutral_800",
        block_title_text_color_dark="*neutral_100",
        block_title_text_weight="500",
        block_label_text_color="*neutral_600",
        block_radius="8px",
        input_radius="6px",
        button_border_width="1px",
        button_large_radius="8px",
        button_large_text_size="*text_md",
        button_large_padding="9px 14px",
        # Stop is at hand, not an alarm.
        button_cancel_background_fill="*background_fill_primary",
        button_cancel_background_fill_dark="*background_fill_primary",
        button_cancel_background_fill_hover="*neutral_100",
        button_cancel_background_fill_hover_dark="*neutral_800",
        button_cancel_border_color="*neutral_300",
        button_cancel_border_color_dark="*neutral_600",
        button_cancel_text_color="#a31515",
        button_cancel_text_color_dark="#ff9b9b",
        button_cancel_text_color_hover="#a31515",
        button_cancel_text_color_hover_dark="#ff9b9b",
        button_secondary_background_fill="*background_fill_primary",
        button_secondary_background_fill_dark="*background_fill_primary",
        button_secondary_background_fill_hover="*neutral_100",
        button_secondary_background_fill_hover_dark="*neutral_800",
        button_secondary_border_color="*neutral_300",
        button_secondary_border_color_dark="*neutral_600",
    )


def page_settings() -> dict[str, Any]:
    """Arguments for `gr.mount_gradio_app`: looks, files that may be served, what is off."""
    return {
        "theme": theme(),
        "css_paths": [str(path) for path in (*STYLES, TABS_STYLE)],
        "allowed_paths": [str(plotly_js())],
        # Fetched beside gradio's own scripts, not after them: the charts stand a tenth sooner.
        "head": f'<link rel="preload" as="script" href="{plotly_url()}">',
        "ssr_mode": False,
        "i18n": translations(),
        "run_history": False,  # it would keep visitors' prompts in their browser
        "footer_links": ["settings"],
        "show_error": False,  # our own errors carry their words; others would show internals
    }
