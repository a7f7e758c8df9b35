"""Pictures of a report of 300 nodes for the documentation.

python -m tests.end_to_end.report_screenshots docs/assets
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from selenium.webdriver import Chrome

from qglow.report.report import write_report
from tests.browser import chromium, open_page, prefer
from tests.unit.report.large_network import large_report, quantized

SORTED = """
const head = [...document.querySelectorAll("th button")].find((one) => one.textContent === "isolated");
head.click();
head.click();
head.closest(".grid").scrollIntoView();
"""
GRAPH = """
const colour = document.getElementById("colour");
colour.value = "error";
colour.dispatchEvent(new Event("change"));
document.querySelector(".explorer").scrollIntoView();
document.querySelectorAll(".verdict .reference")[0].click();
document.querySelector(".panel h2").blur();
"""


def take(browser: Chrome, page: Path, scheme: str, script: str, picture: Path) -> None:
    """Open a page, run a script there, and save what is seen."""
    prefer(browser, scheme)
    open_page(browser, page)
    browser.execute_script(script)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    if not browser.save_screenshot(str(picture)):
        raise OSError(f"cannot write {picture}")


def main(target: Path) -> None:
    """Write the pictures into a folder."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        browser.set_window_size(1280, 900)
        write_report(Path(folder), large_report(), graph=quantized()[0].graph)
        page = Path(folder) / "report.html"
        for scheme in ("light", "dark"):
            take(browser, page, scheme, "", target / f"report-verdict-{scheme}.png")
            take(browser, page, scheme, GRAPH, target / f"report-graph-{scheme}.png")
        take(browser, page, "light", SORTED, target / "report-table-light.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
