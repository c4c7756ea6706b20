"""A real headless browser, where one is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1440,960",
)  # fmt: skip
AXE = """
const done = arguments[0];
axe.run().then((found) => done(found.violations.map((v) => [v.impact, v.id, v.nodes[0].html])));
"""


@contextmanager
def open_browser(profile: Path, *flags: str) -> Iterator[Any]:
    """Yield a Chromium driver with a profile of its own; skips where chromium, its driver or selenium are missing."""
    pytest.importorskip("selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver, env={**os.environ, "no_proxy": "*"}))
    try:
        window.set_page_load_timeout(60)
        yield window
    finally:
        window.quit()


def barriers(driver: Any) -> list[Any]:
    """Return what axe calls serious or critical for people with disabilities: impact, rule, first element."""
    driver.execute_script((files("axe_core_python") / "axe.min.js").read_text())
    return [row for row in driver.execute_async_script(AXE) if row[0] in ("serious", "critical")]
