"""The page of a report of 300 nodes in a browser: tables, search, graph, panel, themes, hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from qglow.report.report import write_report
from tests.browser import chromium, open_page, prefer
from tests.unit.report.large_network import large_report, quantized

pytestmark = pytest.mark.slow

EVIL = '</script><img src=x onerror="window.hacked=1">\'\u202e\x1b<!--'
SHIFTS = """
const done = arguments[0];
let sum = 0;
new PerformanceObserver((list) => list.getEntries().forEach((entry) => { sum += entry.value; }))
  .observe({ type: "layout-shift", buffered: true });
setTimeout(() => done(sum), 200);
"""
NOTICED = 5e-3
"""Layout shifts of a twentieth of what still counts as good (0.1, https://web.dev/articles/cls)."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(folder, large_report(), graph=quantized()[0].graph)
    return folder / "report.html"


@pytest.fixture
def page(browser: Chrome, written: Path) -> Chrome:
    prefer(browser, "light")
    open_page(browser, written)
    browser.execute_script("localStorage.clear()")
    return browser


def find(page: Chrome | WebElement, selector: str) -> WebElement:
    return page.find_element(By.CSS_SELECTOR, selector)


def every(page: Chrome | WebElement, selector: str) -> list[WebElement]:
    return page.find_elements(By.CSS_SELECTOR, selector)


def layers(page: Chrome) -> WebElement:
    """The table of layers with its tools."""
    return next(grid for grid in every(page, ".grid") if "isolated" in heads(grid))


def heads(grid: WebElement) -> list[str]:
    return [button.text for button in every(grid, "th button")]


def column(page: Chrome, grid: WebElement, title: str) -> list[str]:
    """Cells of the rows that are shown."""
    script = """
      const [grid, index] = arguments;
      return [...grid.querySelectorAll("tbody tr")].filter((row) => row.offsetHeight)
        .map((row) => row.cells[index].textContent);
    """
    return list(page.execute_script(script, grid, heads(grid).index(title)))


def click(page: Chrome, element: WebElement) -> None:
    """Click in the middle of the window, where no bar covers the element."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def problems(page: Chrome) -> list[str]:
    return [entry["message"] for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def test_page_opens_without_errors_shifts_and_requests(page: Chrome) -> None:
    # A busy machine may paint before the page's scripts have run: a line may move by a pixel then.
    assert page.execute_async_script(SHIFTS) < NOTICED
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert problems(page) == []
    assert find(page, "main section h2").text == "Verdict: good"
    assert find(page, ".verdict .reference").is_displayed()
    width = page.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, "the page scrolls sideways"
    assert page.execute_script("return document.documentElement.scrollHeight") < 8000


def test_narrow_windows_need_no_scrolling_sideways(page: Chrome) -> None:
    wide = page.get_window_size()
    try:
        page.set_window_size(500, 900)
        assert page.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
    finally:
        page.set_window_size(wide["width"], wide["height"])


def test_tables_sort_and_give_the_order_back(page: Chrome) -> None:
    grid = layers(page)
    given = column(page, grid, "isolated")
    head = next(button for button in every(grid, "th button") if button.text == "isolated")
    cell = head.find_element(By.XPATH, "..")
    for direction, reverse in (("descending", True), ("ascending", False)):
        click(page, head)
        assert cell.get_attribute("aria-sort") == direction
        numbers = [float(text) for text in column(page, grid, "isolated") if text not in ("", "equal")]
        assert len(numbers) > 100 and numbers == sorted(numbers, reverse=reverse)
    click(page, head)
    assert cell.get_attribute("aria-sort") == "none" and column(page, grid, "isolated") == given
    head.send_keys(Keys.ENTER)
    assert cell.get_attribute("aria-sort") == "descending", "the keyboard sorts as the mouse does"


def test_tables_filter_and_fold_data_movement(page: Chrome) -> None:
    grid = layers(page)
    count, total = find(grid, "output"), len(every(grid, "tbody tr"))
    assert not {"Slice", "Concat", "Transpose", "Reshape"} & set(column(page, grid, "operator"))
    assert count.text == f"{len(column(page, grid, 'operator'))} of {total} rows"
    click(page, find(grid, ".tools input[type=checkbox]"))
    assert {"Slice", "Concat", "Transpose", "Reshape"} <= set(column(page, grid, "operator"))
    assert count.text == f"{total} of {total} rows"
    find(grid, ".tools input[type=search]").send_keys("LAYER3/ conv")
    found = column(page, grid, "node")
    assert found == [name for name in found if "layer3/" in name and "Conv" in name] and len(found) == 3
    assert count.text == f"3 of {total} rows"
    find(grid, ".tools input[type=search]").clear()
    find(grid, ".tools input[type=search]").send_keys("layer3/")
    Select(find(grid, ".tools select")).select_by_visible_text("Transpose")
    assert column(page, grid, "node") == ["layer3/turn.Transpose"]
    click(page, find(grid, ".tools input[type=checkbox]"))
    assert count.text == f"1 of {total} rows", "what was looked for is not folded away"


def test_search_opens_the_panel_by_keyboard(page: Chrome) -> None:
    find(page, "body").send_keys("/")
    box = page.switch_to.active_element
    assert box.get_attribute("id") == "find"
    box.send_keys("layer7 conv")
    assert [item.text.split()[0] for item in every(page, "#found li")] == [
        "layer7/left.Conv",
        "layer7/narrow.Conv",
        "layer7/mix.Conv",
    ]
    box.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    panel = find(page, "#panel")
    assert find(panel, "h2").text == "layer7/narrow.Conv" and not find(page, "#found").is_displayed()
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not panel.is_displayed() and page.switch_to.active_element == box


def test_panel_tells_what_is_known_of_a_node(page: Chrome) -> None:
    reference = next(one for one in every(layers(page), ".reference") if one.text == "layer1/left.Conv")
    click(page, reference)
    panel = find(page, "#panel")
    terms = [term.text for term in every(panel, "dt")]
    assert {"operator", "quantization", "SQNR", "int8 region", "operand", "constant", "result"} <= set(terms)
    assert len(every(panel, ".histogram")) == 2
    assert len(every(panel, ".channels .range")) == 8 and find(panel, ".channels .scale").is_displayed()
    assert "layer1/left.Conv" in find(page, ".node.chosen").get_attribute("aria-label")
    before = next(one for one in every(panel, "ul .reference") if one.text == "layer0/add.Add")
    before.click()
    assert find(panel, "h2").text == "layer0/add.Add"
    find(panel, "[aria-label='Close the panel']").click()
    assert not panel.is_displayed() and not every(page, ".node.chosen")


def test_reason_of_a_float_node_is_in_its_panel(page: Chrome) -> None:
    find(page, "#find").send_keys("layer2/mix.conv", Keys.ENTER)
    facts = find(page, "#panel dl").text
    assert "stays float" in facts and "kept by rule 1" in facts
    assert "float32" in find(page, "#panel .badge").text


def view_box(page: Chrome) -> list[float]:
    return [float(x) for x in str(find(page, ".graph:not([hidden])").get_dom_attribute("viewBox")).split()]


def test_graph_zooms_and_moves(page: Chrome) -> None:
    graph = find(page, ".graph:not([hidden])")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", graph)
    first = view_box(page)
    find(page, "[data-zoom='in']").click()
    assert view_box(page)[2] < first[2]
    find(page, "[data-zoom='fit']").click()
    whole = view_box(page)
    assert whole[1] < 0 and whole[3] >= float(graph.get_attribute("data-height"))
    find(page, "[data-zoom='start']").click()
    assert view_box(page) == pytest.approx(first)
    ActionChains(page).drag_and_drop_by_offset(graph, 120, -200).perform()
    moved = view_box(page)
    assert moved[0] == pytest.approx(first[0] - 120, abs=2)
    assert moved[1] == pytest.approx(first[1] + 200, abs=2)
    assert not find(page, "#panel").is_displayed(), "a drag is no click"
    wheel = (
        "arguments[0].dispatchEvent(new WheelEvent('wheel', {deltaY: -300, ctrlKey: true, cancelable: true}))"
    )
    page.execute_script(wheel, graph)
    assert view_box(page)[2] < moved[2] / 2


def test_click_and_keyboard_open_nodes_of_the_graph(page: Chrome) -> None:
    node = every(page, ".graph:not([hidden]) .node")[1]
    click(page, node)
    assert find(page, "#panel h2").text == "stem.Conv"
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.execute_script("arguments[0].focus()", node)
    for _ in range(2):
        page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert find(page, "#panel h2").text == "layer0/narrow.Conv", "data movement between both is passed"


def test_graph_folds_data_movement_and_colours_errors(page: Chrome) -> None:
    folded = len(every(page, ".graph:not([hidden]) .node"))
    click(page, find(page, "#movement"))
    assert len(every(page, ".graph:not([hidden]) .node")) == 303 > folded > 100
    node = find(page, ".graph:not([hidden]) .node.e0 rect")
    before = node.value_of_css_property("fill")
    Select(find(page, "#colour")).select_by_visible_text("error")
    assert node.value_of_css_property("fill") != before
    assert find(page, ".legend.for-error").is_displayed()
    assert not find(page, ".legend.for-precision").is_displayed()


def ground(page: Chrome) -> str:
    return find(page, "body").value_of_css_property("background-color")


def test_light_and_dark_follow_the_system_and_the_button(page: Chrome) -> None:
    light = ground(page)
    prefer(page, "dark")
    dark = ground(page)
    assert light != dark
    button = find(page, "#theme")
    button.click()
    assert button.text == "Theme: light" and ground(page) == light
    button.click()
    assert button.text == "Theme: dark" and ground(page) == dark
    prefer(page, "light")
    page.refresh()
    assert ground(page) == dark, "a choice is kept"
    find(page, "#theme").click()
    assert ground(page) == light


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(page: Chrome, scheme: str) -> None:
    prefer(page, scheme)
    script = """
      const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
      const linear = (color) => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((x) => x / 255)
          .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
      };
      const weights = [0.2126, 0.7152, 0.0722];
      const light = (color) => linear(color).reduce((sum, x, i) => sum + weights[i] * x, 0);
      const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const found = {};
      for (const error of [false, true]) {
        const parts = document.querySelectorAll(".explorer, .graph > g");
        parts.forEach((one) => one.classList.toggle("by-error", error));
        for (const node of document.querySelectorAll(".graph .node")) {
          const fill = getComputedStyle(node.querySelector("rect")).fill;
          const text = getComputedStyle(node.querySelector("text")).fill;
          found[`${error} ${node.getAttribute("class")}`] = ratio(light(fill), light(text));
        }
      }
      for (const selector of ["p", "caption", ".reference", "a", "figcaption", "td"]) {
        const style = getComputedStyle(document.querySelector(selector));
        found[selector] = ratio(light(style.color), light(getComputedStyle(document.body).backgroundColor));
      }
      return found;
    """
    weak = {what: ratio for what, ratio in page.execute_script(script).items() if ratio < 4.5}
    assert weak == {}


def test_page_can_be_read_without_scripts(browser: Chrome, written: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(browser, written)
        assert not find(browser, "#theme").is_displayed()
        assert find(browser, "tr.movement").is_displayed()
        assert find(browser, ".graph .node").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_hostile_names_do_nothing_in_a_browser(browser: Chrome, tmp_path: Path) -> None:
    write_report(tmp_path, large_report(2, EVIL), graph=quantized(2, EVIL)[0].graph)
    open_page(browser, tmp_path / "report.html")
    find(browser, "#find").send_keys("stem.conv", Keys.ENTER)
    shown = find(browser, "#panel h2").text
    assert shown == f"{EVIL}stem.Conv".replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
    assert browser.execute_script("return window.hacked") is None
    assert every(browser, "img") == [] and problems(browser) == []
