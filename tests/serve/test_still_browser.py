"""The graph view as one file in a real browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.types import Passage
from tests.helpers.browser import open_browser
from tests.helpers.drawn import page_around

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


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Any:
    """Open the page of a hub with long names, one of which would like to run, and a second hop."""
    ends = [f"No{i} {'Harbour Treaty of Kalmar Society'[: 8 + i]}" for i in range(14)] + [EVIL]
    hub = tuple(("Night Harbour", "is joined to", end) for end in ends)
    far = tuple((ends[i % 6], "leads to", f"Far {i}") for i in range(8))
    details = (EntityRecord("Night Harbour", "film", "A film about a lighthouse."), EntityRecord(ends[0], "town"))
    passages = [
        Passage("p0", "Night Harbour", f"Night Harbour was shot in Tromso. {EVIL} It names {ends[3]}."),
        Passage("p1", EVIL, "What lies further away."),
    ]
    graph = fold([Extraction(triples=hub, details=details), Extraction(triples=far)], hyperedges="none")
    path = tmp_path / "page.html"
    path.write_text(page_around(graph, passages, "Night Harbour"), "utf-8")
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


def complaints(page: Any) -> list[str]:
    return [row["message"] for row in page.get_log("browser")]


def test_it_loads_quietly_asks_the_network_for_nothing_and_labels_have_room(page: Any) -> None:
    assert complaints(page) == [] and page.title == "Night Harbour · gnnrag"
    assert page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    assert "A film about a lighthouse." in page.execute_script("return document.getElementById('node').textContent")
    sees(page, "document.querySelectorAll('#canvas canvas').length")
    boxes, zoom = page.execute_script(DRAWN)
    assert len(boxes) >= 15 and 12 * zoom >= 8, "pixels"
    at = np.array(boxes)
    low, high = np.maximum(at[:, None, :2], at[None, :, :2]), np.minimum(at[:, None, 2:], at[None, :, 2:])
    assert np.clip(high - low, 0, None).prod(axis=2)[np.triu_indices(len(at), 1)].max() < 20


def test_it_is_walked(page: Any) -> None:
    before = sees(page, "document.getElementById('drawn').textContent")
    page.execute_script("document.getElementById('find').value = 'far 3'")
    page.execute_script("document.getElementById('finder').requestSubmit()")
    sees(page, "document.querySelectorAll('#matches button').length === 1")
    page.execute_script("document.querySelector('#matches button').click()")
    sees(page, "document.querySelector('#node h2').textContent === 'Far 3'")
    assert sees(page, "document.getElementById('drawn').textContent") != before and complaints(page) == []


def test_text_of_documents_does_not_run_even_where_it_was_injected(page: Any) -> None:
    page.execute_script("location.hash = '#/x/graph?node=p%3Ap0'")
    button = "[...document.querySelectorAll('#node button')].find((b) => b.textContent === 'Open the passage')"
    sees(page, button)
    page.execute_script(f"{button}.click()")
    assert EVIL in sees(page, "document.querySelector('dialog[open] .text')?.textContent")
    code = "const s = document.createElement('script'); s.textContent = 'document.title = 1'; document.body.append(s);"
    page.execute_script(code + f"document.getElementById('node').innerHTML = {EVIL.removeprefix('</script>')!r}")
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
