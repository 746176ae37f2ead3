"""Photograph a running page mid-stream, light and dark: assets/screenshot-{light,dark}.png.

python app.py &
python scripts/screenshot.py [--url http://127.0.0.1:7860] [--tokens 110] [--seed 1]
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ASSETS = Path(__file__).resolve().parents[1] / "assets"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZE = {"width": 1280, "height": 1240}  # to the end of the panels
MAX_BYTES = 500_000


def photograph(browser: Browser, url: str, theme: str, tokens: int, seed: int) -> Path:
    """Run until `tokens` tokens are on the page, keep the picture."""
    page = browser.new_page(viewport=SIZE)
    page.goto(f"{url}/?__theme={theme}")
    page.wait_for_function("document.querySelector('[data-chart=tpot]')?.data?.length === 3")
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


def main() -> None:
    """Parse arguments and take both pictures."""
    parser = argparse.ArgumentParser(description="Photograph a running page mid-stream.")
    parser.add_argument("--url", default="http://127.0.0.1:7860")
    parser.add_argument("--tokens", type=int, default=110)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if chromium is None:
        sys.exit("no Chromium found: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        for theme in ("light", "dark"):
            path = photograph(browser, args.url.rstrip("/"), theme, args.tokens, args.seed)
            size = path.stat().st_size
            print(f"{path.name}: {size / 1000:.0f} kB")
            if size > MAX_BYTES:
                sys.exit(f"{path.name} is larger than {MAX_BYTES / 1000:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()
