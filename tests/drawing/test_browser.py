"""The page in a real browser."""

from __future__ import annotations

import numpy as np
import pytest

from gnnrag.cli.index import main
from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.pages.graph import WIDTH, around_entity, render_page
from gnnrag.types import Passage
from tests.helpers.browser import open_browser
from tests.helpers.each import each
from tests.helpers.indexes import CORPUS, build

pytestmark = pytest.mark.slow
EVIL = "</script><img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def thirty(tmp_path_factory):
    """A page of 30 nodes: a hub, a second hop, a name that would like to run, long names."""
    rng = np.random.default_rng(4)
    words = ["Harbour", "Treaty", "Orchestra", "of Kalmar", "Lindqvist", "River", "the Elder", "Society"]
    ends = [" ".join([f"No{i}", *rng.choice(words, 1 + i % 4)]) for i in range(20)] + [EVIL]
    far = [f"Far {i} {words[i % 8]}" for i in range(12)]
    extractions = [
        Extraction(
            triples=tuple(("Night Harbour", "is joined to", end) for end in ends),
            details=(
                EntityRecord("Night Harbour", "film", "A film about a lighthouse."),
                EntityRecord(ends[0], "town"),
            ),
        ),
        Extraction(triples=tuple((ends[i % 6], "leads to", name) for i, name in enumerate(far))),
        Extraction(triples=((ends[1], "near", ends[2]), (ends[1], "near", ends[5]))),
    ]
    passages = [
        Passage(
            "p0", "Night Harbour", f"Night Harbour was shot in Tromso. {EVIL} It names {ends[3]}, not Night Harbours."
        ),
        Passage("p1", EVIL, "What lies further away."),
        Passage("p2", "Near", "Things that stand near each other."),
    ]
    graph = fold(extractions, hyperedges="none")
    path = tmp_path_factory.mktemp("page") / "thirty.html"
    path.write_text(render_page(graph, around_entity(graph, "Night Harbour"), passages), "utf-8")
    return path


@pytest.fixture
def page(browser, thirty):
    browser.get_log("browser")
    browser.get(thirty.as_uri())
    return browser


def boxes(page, selector):
    """Return left, top, right, bottom of what is visible of a selector."""
    code = """return [...document.querySelectorAll(arguments[0])]
        .filter(e => getComputedStyle(e).visibility === 'visible')
        .map(e => e.getBoundingClientRect()).map(r => [r.left, r.top, r.right, r.bottom])"""
    return np.array(page.execute_script(code, selector)).reshape(-1, 4)


def overlaps(one, other=None):
    """Return the area each two boxes share, over the smaller one's area; each pair once, none with itself."""
    other = one if other is None else other
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    area = [(b[:, 2:] - b[:, :2]).prod(axis=1) for b in (one, other)]
    share = shared / np.minimum(area[0][:, None], area[1][None, :])
    return share[np.triu_indices(len(one), 1)] if other is one else share.ravel()


def no_complaints(page):
    return [row["message"] for row in page.get_log("browser")] == []


def press(page, *keys):
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(page).send_keys(key).perform()


def focused(page):
    return page.execute_script("return document.activeElement.getAttribute('aria-label') || document.activeElement.id")


def panel(page):
    return page.execute_script("return document.getElementById('panel').textContent")


def test_it_loads_quietly_and_asks_the_network_for_nothing(page):
    assert no_complaints(page)
    loaded = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert loaded == []
    assert page.title == "Night Harbour · gnnrag"


def test_thirty_nodes_lie_in_the_window_with_readable_labels(page):
    nodes, labels = boxes(page, ".node circle"), boxes(page, ".node text")
    assert len(nodes) == len(labels) == 30
    stage = boxes(page, "#stage")[0]
    for some in (nodes, labels):
        assert (some[:, :2] >= stage[:2] - 1).all() and (some[:, 2:] <= stage[2:] + 1).all()
    assert overlaps(labels).max() < 0.02 and overlaps(nodes).max() == 0
    edge_labels = boxes(page, ".edge text")
    assert len(edge_labels) >= 5
    assert overlaps(edge_labels).max() < 0.1 and overlaps(edge_labels, labels).max() < 0.1
    assert (labels[:, 3] - labels[:, 1]).min() >= 11, "pixels"
    legend = boxes(page, "#legend")[0]
    assert overlaps(labels, legend[None]).max() < 0.5
    kinds = {e.get_attribute("class") for e in page.find_elements("css selector", ".node circle")}
    assert kinds == {"k0", "k1", "k2"}
    assert "film" in page.find_element("id", "legend").text and "town" in page.find_element("id", "legend").text


def test_a_click_on_a_node_shows_its_passages(page):
    page.find_element("css selector", ".node.focus circle").click()
    shown = panel(page)
    assert "A film about a lighthouse." in shown and "Night Harbour was shot in Tromso." in shown
    marks = page.find_elements("css selector", "#panel mark")
    assert [m.text for m in marks] == ["Night Harbour"]
    assert no_complaints(page)


def test_a_click_on_an_edge_shows_its_passages(page):
    page.execute_script("document.querySelectorAll('.edge')[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    shown = panel(page)
    assert "is joined to" in shown and "Passages" in shown and "Tromso" in shown
    buttons = page.find_elements("css selector", "#panel li button")
    assert len(buttons) == 2
    buttons[0].click()
    assert "Joined here to" in panel(page)


def test_the_keyboard_reaches_everything(page):
    from selenium.webdriver.common.keys import Keys

    seen = []
    for _ in range(4 + 30 + len(page.find_elements("css selector", ".edge"))):
        press(page, Keys.TAB)
        seen.append(focused(page))
    assert len(set(seen)) >= 30 and any(s.startswith("Night Harbour, film, asked for") for s in seen)
    page.execute_script("document.querySelector('.node.focus').focus()")
    press(page, Keys.ENTER)
    assert "A film about a lighthouse." in panel(page)
    outline = page.execute_script("return getComputedStyle(document.querySelector('.node.focus circle')).strokeWidth")
    assert float(outline.removesuffix("px")) >= 4, "what has the focus is marked"
    press(page, Keys.ESCAPE)
    assert "Nothing is chosen" in panel(page)
    page.execute_script("document.querySelectorAll('.edge')[0].focus()")
    press(page, Keys.SPACE)
    assert "is joined to" in panel(page)
    unnamed = """return [...document.querySelectorAll('[tabindex="0"], button')]
        .filter(e => !(e.getAttribute('aria-label') || e.textContent)).length"""
    assert page.execute_script(unnamed) == 0


def test_zoom_and_pan(page):
    def view():
        return [float(v) for v in page.find_element("id", "graph").get_dom_attribute("viewBox").split()]

    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    whole = view()
    press(page, "+")
    assert view()[2] < whole[2] == WIDTH
    press(page, Keys.ARROW_RIGHT)
    assert view()[0] > 0
    press(page, "0")
    assert view() == whole
    stage = page.find_element("id", "graph")
    ActionChains(page).move_to_element_with_offset(stage, -400, -300).click_and_hold().move_by_offset(
        60, 40
    ).release().perform()
    assert view()[0] < 0 and view()[1] < 0 and view()[2] == WIDTH
    page.find_element("id", "fit").click()
    assert view() == whole
    page.find_element("id", "labels").click()
    assert len(boxes(page, ".edge text")) == len(page.find_elements("css selector", ".edge"))


def test_hostile_names_and_passages_do_nothing(page):
    code = """return [...document.querySelectorAll('.node')]
        .findIndex(n => n.getAttribute('aria-label').startsWith('</script>'))"""
    place = page.execute_script(code)
    assert place > 0
    page.execute_script(
        f"document.querySelectorAll('.node')[{place}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
    )
    assert EVIL in panel(page)
    assert page.execute_script("return document.querySelectorAll('img').length") == 0
    assert page.execute_script("return document.querySelectorAll('script').length") == 2
    assert page.title == "Night Harbour · gnnrag" and no_complaints(page)


def test_even_what_was_injected_would_not_run(page):
    code = "const s = document.createElement('script'); s.textContent = 'document.title = 1'; document.body.append(s);"
    page.execute_script(code + f"document.getElementById('panel').innerHTML = {EVIL.removeprefix('</script>')!r}")
    assert page.execute_script("return document.querySelectorAll('img').length") == 1
    refused = [row["message"] for row in page.get_log("browser")]
    assert page.title == "Night Harbour · gnnrag"
    assert any("Content Security Policy" in message for message in refused)


@each("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_have_contrast(page, scheme):
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    code = """const c = (e, p) => getComputedStyle(e)[p].match(/[\\d.]+/g).slice(0, 3).map(Number);
        return [c(document.body, 'backgroundColor'), c(document.querySelector('.node text'), 'fill'),
                c(document.querySelector('.edge text'), 'fill')]"""
    paper, *inks = [_luminance(rgb) for rgb in page.execute_script(code)]
    assert (paper > 0.5) == (scheme == "light")
    for ink in inks:
        assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) >= 4.5, "WCAG AA"


def _luminance(rgb):
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_the_script_writes_such_a_page(browser, tmp_path, capsys):
    build(tmp_path / "index", CORPUS, stages=["knowledge", "knowledge_vectors"])
    for name, more, title in (
        ("a", ["--entity", "Lord Byron"], "Lord Byron"),
        ("b", ["--question", "Where did the father of Ada Lovelace die?"], "Where did the father of Ada Lovelace die?"),
    ):
        main(["inspect", str(tmp_path / "index"), "--html", str(tmp_path / f"{name}.html"), *more])
        browser.get_log("browser")
        browser.get((tmp_path / f"{name}.html").as_uri())
        assert browser.find_element("id", "title").text == title
        assert len(boxes(browser, ".node circle")) >= 3 and no_complaints(browser)
