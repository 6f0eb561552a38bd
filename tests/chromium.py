"""The browser of the tests of pages, and what readers of screens would stumble over in one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

#: Debian's name first; nothing is ever downloaded.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for each file of tests: while it is there, nothing else in its process can have an event loop."""
    driver = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'silograph[dev]'")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no browser: install Debian's chromium (apt-get install chromium)")
    with driver.sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        except driver.Error as error:
            pytest.skip(f"{path} does not start here: {str(error).splitlines()[0]}")
        yield started
        started.close()


def faults(page: Any, *rules: str) -> list[str]:
    """What axe-core finds that is serious or critical, by all rules or by these."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-playwright-python")
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found = axe.Axe().run(page, options=options).response["violations"]
    return [
        f"{each['id']}: {each['help']} ({each['nodes'][0]['html'][:120]})"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
