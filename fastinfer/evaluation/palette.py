"""How lines look on white or dark ground: colours that people who see fewer tell apart."""

from __future__ import annotations

# Okabe and Ito, "Color Universal Design" (2008); a seventh line begins again, dashed.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def line_look(index: int) -> dict[str, str]:
    """Colour and dash of line `index`, as plotly names them."""
    return {
        "color": OKABE_ITO[index % len(OKABE_ITO)],
        "dash": "solid" if index < len(OKABE_ITO) else "dash",
    }
