"""docs/assets/report.png: the top of the report of the README's private run, as a browser shows it. `make picture`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

from silograph.cli import app

PICTURE = Path(__file__).parent / "assets" / "report.png"
TOP = {"x": 0, "y": 30, "width": 1200, "height": 1400}


def main() -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("no browser: install Debian's chromium")
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        sites, out = Path(folder) / "sites", Path(folder) / "private"
        app(["sample", str(sites)], standalone_mode=False)
        app(["learn", str(sites), "-o", str(out), "--degree", "6", "--epsilon", "2"], standalone_mode=False)
        started = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = started.new_page(viewport={"width": TOP["width"], "height": TOP["y"] + TOP["height"]})
        page.goto((out / "report.html").as_uri())
        page.wait_for_selector("html[data-ready]")
        page.screenshot(path=PICTURE, clip=TOP)
        started.close()
    Image.open(PICTURE).convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
