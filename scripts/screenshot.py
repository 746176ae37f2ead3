"""Photograph a running page for the README, all of it as a visitor sees it.

    python app.py &
    python scripts/screenshot.py [--url http://127.0.0.1:7860] [--tokens 110] [--seed 1]

Writes to assets/: screenshot-{light,dark}.png, the Generate tab while it writes; compare-{light,
dark}.png, the Compare tab with its replay halfway; compare.gif, that replay at the speed at which
it was recorded.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ASSETS = Path(__file__).resolve().parents[1] / "assets"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZE = {"width": 1280, "height": 1240}  # to the end of the panels
MAX_BYTES = 700_000
FRAMES = 36
GIF_WIDTH = 820
GIF_COLOURS = 128
PAUSE_MS = 1800  # on the last frame


def opened(browser: Browser, url: str, theme: str) -> Page:
    page = browser.new_page(viewport=SIZE)
    page.goto(f"{url}/?__theme={theme}")
    page.wait_for_function("document.querySelector('[data-chart=tpot]')?.data?.length === 3")
    return page


def photograph(browser: Browser, url: str, theme: str, tokens: int, seed: int) -> Path:
    """Run until `tokens` tokens are on the page, keep the picture."""
    page = opened(browser, url, theme)
    page.fill("#max_new_tokens input", "600")  # still writing when the picture is taken
    page.fill("#seed input, #seed textarea", str(seed))
    page.click("#generate")
    page.wait_for_function(
        f"document.querySelectorAll('.fi-token').length >= {tokens}", timeout=300_000
    )
    path = ASSETS / f"screenshot-{theme}.png"
    page.screenshot(path=path)
    page.close()  # which stops the run
    return path


def compared(browser: Browser, url: str, theme: str, seed: int) -> Page:
    """The Compare tab after "Again ×5"."""
    page = opened(browser, url, theme)
    page.get_by_role("tab", name="Compare", exact=True).click()
    page.fill("#compare-seed input, #compare-seed textarea", str(seed))
    page.click("#compare-start-2")
    page.wait_for_selector("#compare-view .fi-view[data-state=done]", timeout=300_000)
    page.wait_for_selector("#compare-start-2:not([disabled])")
    return page


def show(page: Page, share: float) -> None:
    """Put the replay at this share of its time."""
    page.eval_on_selector(
        "#compare-view input[type=range]",
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }",
        round(1000 * share),
    )


def still(page: Page, theme: str) -> Path:
    """The replay past its middle."""
    show(page, 0.6)
    path = ASSETS / f"compare-{theme}.png"
    page.screenshot(path=path, full_page=True)
    return path


def film(page: Page) -> Path:
    """The replay from its begin to its end, as long as it lasted."""
    box = page.evaluate(
        """() => { const view = document.querySelector('#compare-view').getBoundingClientRect();
          const end = document.querySelector('#compare-view .fi-columns').getBoundingClientRect();
          return {x: view.x - 8, y: view.y - 8, width: view.width + 16,
            height: end.bottom - view.y + 16}; }"""
    )
    frames = []
    for index in range(FRAMES):
        show(page, index / (FRAMES - 1))
        picture = Image.open(io.BytesIO(page.screenshot(clip=box))).convert("RGB")
        height = round(picture.height * GIF_WIDTH / picture.width)
        frames.append(picture.resize((GIF_WIDTH, height), Image.Resampling.LANCZOS))
    # One palette for all frames, taken from the last, which has every colour.
    palette = frames[-1].quantize(GIF_COLOURS, dither=Image.Dither.NONE)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    words = page.text_content("#compare-view [data-part=clock]") or ""
    whole_ms = 1000 * float(words.split(" of ")[1].removesuffix(" s"))
    pace_ms = max(20, round(whole_ms / FRAMES))
    path = ASSETS / "compare.gif"
    frames[0].save(
        path, save_all=True, append_images=frames[1:], loop=0, optimize=True,
        duration=[pace_ms] * (FRAMES - 1) + [PAUSE_MS],
    )  # fmt: skip
    return path


def main() -> None:
    """Parse arguments and take all pictures."""
    parser = argparse.ArgumentParser(description="Photograph a running page for the README.")
    parser.add_argument("--url", default="http://127.0.0.1:7860")
    parser.add_argument("--tokens", type=int, default=110)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if chromium is None:
        sys.exit("no Chromium found: apt-get install chromium")
    url = args.url.rstrip("/")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        paths = []
        for theme in ("light", "dark"):
            paths.append(photograph(browser, url, theme, args.tokens, args.seed))
            page = compared(browser, url, theme, args.seed)
            paths.append(still(page, theme))
            if theme == "light":
                paths.append(film(page))
            page.close()
        browser.close()
    for path in paths:
        size = path.stat().st_size
        print(f"{path.name}: {size / 1000:.0f} kB")
        if size > MAX_BYTES:
            sys.exit(f"{path.name} is larger than {MAX_BYTES / 1000:.0f} kB")


if __name__ == "__main__":
    main()
