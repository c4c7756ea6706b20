"""The page of runs in a real browser: small real runs, and a thousand invented questions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import barriers, open_browser
from tests.helpers.explorer_runs import EVIL, invented_data, invented_run, page_of, sample_runs
from tests.helpers.indexes import REPOSITORY

pytestmark = pytest.mark.slow
SAMPLE_QUESTIONS = [
    json.loads(row) for row in (REPOSITORY / "data/sample/questions.dev.jsonl").read_text().splitlines()
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    root = tmp_path_factory.mktemp("sample")
    paths = sample_runs(root)
    return page_of(paths, root / "page.html"), paths


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A thousand questions and ten rounds; question 3 and its passage are hostile."""
    root = tmp_path_factory.mktemp("invented")
    data = invented_data(root / "data", 1000)
    paths = [invented_run(data, root / "one", 1, 3, "single"), invented_run(data, root / "two", 10, 2)]
    return page_of(paths, root / "page.html"), paths


def opened(browser: Any, page: Path, address: str = "") -> None:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(page.as_uri() + address)
    until(lambda: browser.execute_script("return document.body.dataset.ready"))


def until(test: Callable[[], Any], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)


def quiet(browser: Any) -> bool:
    return [row["message"] for row in browser.get_log("browser")] == []


def text_of(browser: Any, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).textContent", selector))


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def pick(browser: Any, select: str, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element("id", select)).select_by_value(value)


def listed(browser: Any) -> list[str]:
    code = "return [...document.querySelectorAll('#list [role=option] .ask')].map(e => e.textContent)"
    return list(browser.execute_script(code))


def shows(browser: Any, text: str) -> None:
    until(lambda: text in text_of(browser, "#question"))


def numbers_equal_the_files(browser: Any, paths: list[Path]) -> None:
    """Every figure of the table is the one in `metrics.json`, with its interval."""
    for path in paths:
        metrics = json.loads((path / "metrics.json").read_text())
        cells = browser.find_elements("css selector", f'#results-table td[data-run="{path.name}"]')
        assert len(cells) >= 8
        for cell in cells:
            key = cell.get_attribute("data-key")
            shown = cell.find_element("css selector", ".num").text
            value = (
                metrics["cost/prompt_tokens"] + metrics["cost/completion_tokens"] if key == "tokens" else metrics[key]
            )
            assert float(shown) == pytest.approx(value, abs=0.5 * 10 ** -len(shown.partition(".")[2]) + 1e-9), key
            if f"{key}_ci" in metrics:
                low, high = metrics[f"{key}_ci"]
                assert cell.find_element("css selector", ".ci").text == f"95%: {low:.4f} to {high:.4f}"


def walk_through(browser: Any, page: Path, paths: list[Path], questions: list[dict[str, Any]]) -> None:
    """Read the numbers, search, filter by type, open a question, switch methods, and come back by the link."""
    opened(browser, page)
    numbers_equal_the_files(browser, paths)
    browser.find_element("css selector", "nav a[data-view=explore]").click()
    until(lambda: browser.find_element("id", "text").is_displayed())
    assert f"All {len(questions)} questions" == text_of(browser, "#count")
    wanted = questions[5]
    browser.find_element("id", "text").send_keys(wanted["question"][:30].upper())
    assert wanted["question"] in listed(browser)
    browser.find_element("id", "text").clear()
    browser.find_element("id", "text").send_keys(" ")
    pick(browser, "type", wanted["type"])
    same = [row for row in questions if row["type"] == wanted["type"]]
    assert text_of(browser, "#count") == f"{len(same)} questions of {len(questions)}"
    assert listed(browser) == [row["question"] for row in same][:50]
    browser.find_element("css selector", "#list [role=option]").click()
    shows(browser, same[0]["question"])
    columns = [e.get_attribute("data-run") for e in browser.find_elements("css selector", ".column")]
    assert columns == [path.name for path in paths]
    second = {row["question_id"]: row for row in map(json.loads, (paths[1] / "predictions.jsonl").open())}[
        same[0]["id"]
    ]
    assert (second["answer"] or "(none)") in text_of(browser, f'.column[data-run="{paths[1].name}"] .answer')
    pick(browser, "run-a", "1")
    until(lambda: browser.find_elements("css selector", ".column")[0].get_attribute("data-run") == paths[1].name)
    link = browser.current_url
    opened(browser, page, link.partition(".html")[2])
    shows(browser, same[0]["question"])
    assert browser.find_elements("css selector", ".column")[0].get_attribute("data-run") == paths[1].name
    assert text_of(browser, "#count") == f"{len(same)} questions of {len(questions)}"
    assert quiet(browser)


def test_sample_runs_are_read_searched_and_opened(browser: Any, sample: tuple[Path, list[Path]]) -> None:
    page, paths = sample
    walk_through(browser, page, paths, SAMPLE_QUESTIONS)
    assert browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []


def test_rounds_stand_side_by_side_with_what_they_brought(browser: Any, sample: tuple[Path, list[Path]]) -> None:
    page, paths = sample
    predictions = [json.loads(row) for row in (paths[1] / "predictions.jsonl").open()]
    several = next(row["question_id"] for row in predictions if row["rounds"] == 2)
    opened(browser, page, f"#view=explore&q={several}")
    shows(browser, "The end")
    single, bdtr = browser.find_elements("css selector", ".column")
    stages = [h.text for h in bdtr.find_elements("css selector", ".stage summary h4")]
    assert stages[0].startswith("Round 0") and stages[-1].startswith("The end") and len(stages) == 4
    assert len(single.find_elements("css selector", ".stage")) == 2
    assert bdtr.find_elements("css selector", ".path .box-passage.gold") and bdtr.find_elements(
        "css selector", ".tag.kind"
    )
    assert "brought" in bdtr.find_element("css selector", "svg.path").get_attribute("aria-label")
    hit = bdtr.find_element("css selector", ".block.query .hit summary")
    hit.click()
    until(lambda: bdtr.find_elements("css selector", ".block.query .hit[open] .passage"))
    assert len(bdtr.find_element("css selector", ".hit[open] .passage").text) > 40
    more = bdtr.find_element("css selector", ".block.query button")
    before = len(bdtr.find_elements("css selector", ".block.query .hit"))
    more.click()
    assert len(bdtr.find_elements("css selector", ".block.query .hit")) > before
    assert browser.execute_script("return document.activeElement.tagName") == "SUMMARY"


def test_who_is_right_where(browser: Any, sample: tuple[Path, list[Path]]) -> None:
    page, paths = sample
    ems = [[json.loads(row)["answer/em"] or 0.0 for row in (p / "scores.jsonl").open()] for p in paths]
    only = [sum(a > b for a, b in zip(*pair, strict=True)) for pair in (ems, ems[::-1])]
    opened(browser, page, "#view=plots")
    figure = browser.execute_script(
        "return [...document.querySelectorAll('figure')].find(f => f.textContent.includes('Who is right')).textContent"
    )
    assert f"only B right: {only[1]} question" in figure
    links = browser.find_elements("css selector", "figure .legend a")
    link = next(a for a in links if a.text.startswith("only B right") and "by=answer%2Fem" in a.get_attribute("href"))
    link.click()
    until(lambda: browser.find_element("id", "list").is_displayed())
    assert text_of(browser, "#count").startswith(f"{only[1]} question" if only[1] else "No question fits")


def test_the_keyboard_reaches_everything(browser: Any, sample: tuple[Path, list[Path]]) -> None:
    from selenium.webdriver.common.keys import Keys

    page, _ = sample
    opened(browser, page)
    press(browser, Keys.TAB)
    assert text_of(browser, ":focus") == "Skip to the content"
    press(browser, Keys.TAB, Keys.TAB, Keys.TAB, Keys.ENTER)
    until(lambda: browser.find_element("id", "list").is_displayed())
    press(browser, "/")
    assert browser.execute_script("return document.activeElement.id") == "text"
    press(browser, "river", Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "list"
    press(browser, Keys.ARROW_DOWN)
    shows(browser, listed(browser)[0])
    press(browser, Keys.ARROW_DOWN)
    shows(browser, listed(browser)[1])
    chosen = browser.find_element("css selector", "#list [aria-selected=true]")
    assert browser.find_element("id", "list").get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    press(browser, Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "question"
    stops, outlined = set(), True
    for _ in range(30):
        press(browser, Keys.TAB)
        stops.add(browser.execute_script("return document.activeElement.tagName"))
        outlined &= browser.execute_script(
            "const s = getComputedStyle(document.activeElement);"
            "return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2"
        )
    assert {"SUMMARY", "DIV"} <= stops and outlined, "what has the focus is seen"
    press(browser, Keys.SPACE)
    assert quiet(browser)


@pytest.mark.parametrize("view", ["results", "plots", "explore&q=sample-q0"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_anybody_out(browser: Any, sample: tuple[Path, list[Path]], view: str, scheme: str) -> None:
    page, _ = sample
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    opened(browser, page, f"#view={view}")
    if "q=" in view:
        shows(browser, "The end")
    assert barriers(browser) == []


def test_hostile_questions_and_passages_do_nothing(browser: Any, invented: tuple[Path, list[Path]]) -> None:
    page, _ = invented
    opened(browser, page, "#view=explore&q=q3")
    shows(browser, EVIL)
    browser.execute_script("document.querySelectorAll('.hit summary').forEach(s => s.click())")
    until(lambda: EVIL in text_of(browser, ".passage"))
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.title.endswith("gnnrag") and quiet(browser)
    assert browser.execute_script("return document.querySelectorAll('script:not([data-block])').length") == 2
    assert EVIL in browser.execute_script("return [...document.getElementById('type').options].map(o => o.value)")


def test_a_thousand_questions_cost_little(browser: Any, invented: tuple[Path, list[Path]]) -> None:
    """Counted, not timed: what a filter touches, what stands in the page, what is unpacked."""
    page, _ = invented
    opened(browser, page, "#view=explore")
    count = "return document.querySelectorAll('*').length"
    assert browser.execute_script("return document.body.dataset.unpacked") == "1", "the list of questions alone"
    for words in ("harbour", "number 99", "", "nothing like it"):
        browser.execute_script(
            "const t = document.getElementById('text'); t.value = arguments[0]; t.dispatchEvent(new Event('input'))",
            words,
        )
        assert browser.find_element("id", "list").get_attribute("data-tested") == "1000"
        assert len(listed(browser)) <= 50 and browser.execute_script(count) < 1500
    assert "No question fits" in text_of(browser, "#count")
    opened(browser, page, "#view=explore&q=q997&sort=gain&type=comparison")
    shows(browser, "Round 9")
    assert int(browser.execute_script("return document.body.dataset.unpacked")) <= 8, "only blocks of that question"
    assert browser.execute_script(count) < 4500, "ten rounds of one run beside one of another"
    assert text_of(browser, "#count") == "499 questions of 1,000"
