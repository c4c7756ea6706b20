"""The graph view as one file in a real browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnrag.cli.app import run
from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.types import Passage
from tests.helpers.browser import open_browser
from tests.helpers.drawn import page_around
from tests.helpers.indexes import CORPUS, build

pytestmark = pytest.mark.slow
DRAWN = """
const {cy} = document.getElementById("canvas")._cyreg;
const boxes = cy.nodes().map((node) => node.boundingBox({includeOverlays: false}));
return [boxes.map((box) => [box.x1, box.y1, box.x2, box.y2]), cy.zoom()];
"""
EVIL = "</script><img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 30 entities: a hub, a second hop, a name that would like to run, long names."""
    rng = np.random.default_rng(4)
    words = ["Harbour", "Treaty", "Orchestra", "of Kalmar", "Lindqvist", "River", "the Elder", "Society"]
    ends = [" ".join([f"No{i}", *rng.choice(words, 1 + i % 4)]) for i in range(20)] + [EVIL]
    far = [f"Far {i} {words[i % 8]}" for i in range(12)]
    hub = tuple(("Night Harbour", "is joined to", end) for end in ends)
    details = (EntityRecord("Night Harbour", "film", "A film about a lighthouse."), EntityRecord(ends[0], "town"))
    extractions = [
        Extraction(triples=hub, details=details),
        Extraction(triples=tuple((ends[i % 6], "leads to", name) for i, name in enumerate(far))),
        Extraction(triples=((ends[1], "near", ends[2]), (ends[1], "near", ends[5]))),
    ]
    passages = [
        Passage("p0", "Night Harbour", f"Night Harbour was shot in Tromso. {EVIL} It names {ends[3]}."),
        Passage("p1", EVIL, "What lies further away."),
        Passage("p2", "Near", "Things that stand near each other."),
    ]
    path = tmp_path_factory.mktemp("page") / "thirty.html"
    path.write_text(page_around(fold(extractions, hyperedges="none"), passages, "Night Harbour"), "utf-8")
    return path


@pytest.fixture
def page(browser: Any, thirty: Path) -> Any:
    return opened(browser, thirty)


def opened(browser: Any, path: Path) -> Any:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(path.as_uri())
    sees(browser, "document.querySelector('#node h2')")
    return browser


def sees(page: Any, script: str) -> Any:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if found := page.execute_script(f"return {script}"):
            return found
        time.sleep(0.05)
    raise AssertionError(script)


def press(page: Any, text: str) -> None:
    """Press the button beside the drawing that says this."""
    code = "[...document.querySelectorAll('#node button')].find((one) => one.textContent === arguments[0]).click()"
    page.execute_script(code, text)


def complaints(page: Any) -> list[str]:
    return [row["message"] for row in page.get_log("browser")]


def test_it_loads_quietly_and_asks_the_network_for_nothing(page: Any) -> None:
    assert complaints(page) == [] and page.title == "Night Harbour · gnnrag"
    assert page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    assert "A film about a lighthouse." in page.execute_script("return document.getElementById('node').textContent")
    assert sees(page, "document.querySelectorAll('#canvas canvas').length")


def test_labels_have_room_and_can_be_read(page: Any) -> None:
    sees(page, "document.querySelectorAll('#canvas canvas').length")
    boxes, zoom = page.execute_script(DRAWN)
    assert len(boxes) >= 20 and 12 * zoom >= 8, "pixels"
    at = np.array(boxes)
    low, high = np.maximum(at[:, None, :2], at[None, :, :2]), np.minimum(at[:, None, 2:], at[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    assert shared[np.triu_indices(len(at), 1)].max() < 20


def test_it_is_walked(page: Any) -> None:
    before = sees(page, "document.getElementById('drawn').textContent")
    page.execute_script("document.getElementById('find').value = 'far 3'")
    page.execute_script("document.getElementById('finder').requestSubmit()")
    sees(page, "document.querySelectorAll('#matches button').length === 1")
    page.execute_script("document.querySelector('#matches button').click()")
    sees(page, "document.querySelector('#node h2').textContent.startsWith('Far 3 ')")
    assert "null" not in page.execute_script("return document.getElementById('node').textContent")
    assert sees(page, "document.getElementById('drawn').textContent") != before
    before = page.execute_script("return document.getElementById('drawn').textContent")
    press(page, sees(page, "document.querySelector('#node .joined button').textContent"))
    press(page, "Expand")
    sees(page, f"document.getElementById('drawn').textContent !== {before!r}")
    before = page.execute_script("return document.getElementById('drawn').textContent")
    page.execute_script("document.querySelector('#types input').click()")
    sees(page, f"document.getElementById('drawn').textContent !== {before!r}")
    assert complaints(page) == []


def test_a_passage_opens_and_leads_back_to_the_graph(page: Any) -> None:
    page.execute_script("location.hash = '#/x/graph?node=p%3Ap0'")
    sees(page, "[...document.querySelectorAll('#node button')].some((one) => one.textContent === 'Open the passage')")
    press(page, "Open the passage")
    assert EVIL in sees(page, "document.querySelector('dialog[open] .text')?.textContent")
    assert page.execute_script("return document.querySelectorAll('img').length") == 0
    assert page.title == "Night Harbour · gnnrag" and complaints(page) == []


def test_even_what_was_injected_would_not_run(page: Any) -> None:
    code = "const s = document.createElement('script'); s.textContent = 'document.title = 1'; document.body.append(s);"
    page.execute_script(code + f"document.getElementById('node').innerHTML = {EVIL.removeprefix('</script>')!r}")
    assert page.execute_script("return document.querySelectorAll('#node img').length") == 1
    assert page.title == "Night Harbour · gnnrag"
    assert any("Content Security Policy" in message for message in complaints(page))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width, height", [(1280, 860), (390, 844)])
def test_nothing_keeps_anybody_out(page: Any, width: int, height: int, scheme: str) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    # By the debugger: what is injected from here is not under the page's policy.
    page.execute_cdp_cmd("Runtime.evaluate", {"expression": (files("axe_core_python") / "axe.min.js").read_text()})
    code = "const done = arguments[0]; axe.run().then((f) => done(f.violations.map((v) => [v.impact, v.id])))"
    assert [row for row in page.execute_async_script(code) if row[0] in ("serious", "critical")] == []


def test_the_command_writes_such_a_page(browser: Any, tmp_path: Path) -> None:
    build(tmp_path / "index", CORPUS, names=["knowledge", "knowledge_vectors"])
    question = "Where did the father of Ada Lovelace die?"
    for name, more, title in (
        ("a", ["--entity", "Lord Byron"], "Lord Byron"),
        ("b", ["--question", question], question),
    ):
        run(["index", "inspect", str(tmp_path / "index"), "--html", str(tmp_path / f"{name}.html"), *more])
        page = opened(browser, tmp_path / f"{name}.html")
        assert page.find_element("id", "title").text == title and complaints(page) == []
        assert int(sees(page, "document.getElementById('drawn').textContent").split()[0]) >= 3
