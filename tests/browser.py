"""Chromium without a window, for tests of pages."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

SIZE = (1400, 1000)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",
    "--hide-scrollbars",
)


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own. Skips the test where Chromium or its driver is missing."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no Chromium with chromedriver is installed")
    with tempfile.TemporaryDirectory(prefix="qglow-browser-", ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={SIZE[0]},{SIZE[1]}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        running = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield running
        finally:
            running.quit()


def prefer(browser: webdriver.Chrome, scheme: str) -> None:
    """Make the system's theme "light" or "dark" for pages."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def open_page(browser: webdriver.Chrome, path: Path) -> None:
    """Open a file."""
    browser.get(path.resolve().as_uri())
