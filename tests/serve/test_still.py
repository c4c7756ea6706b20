"""The graph view as one file: what is in it, and what cannot happen in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.index.index import Index
from gnnrag.pages import fill, inert
from gnnrag.pages.graph import for_question
from gnnrag.serve.still import page_data
from gnnrag.types import Passage
from tests.helpers.drawn import page_around
from tests.helpers.indexes import CORPUS, build

EVIL = "</script><img src=x onerror=\"document.title='hacked'\">"
PASSAGES = [
    Passage("p0", "Ada", "Ada was born in London. __DATA__ __SCRIPT__ & more"),
    Passage("p1", EVIL, f"{EVIL} <!-- <script> \u2028 and </ScRiPt >."),
]
GRAPH = fold(
    [
        Extraction(
            entities=("Ada",),
            triples=(("Ada", "born_in", "London"), ("Ada", "lived in", "London"), ("Ada", EVIL, "__HASH__")),
            details=(EntityRecord("Ada", "person", "A mathematician."), EntityRecord("London", "city|place", "")),
        ),
        Extraction(triples=((EVIL, "knows", "Ada"),)),
    ],
    hyperedges="none",
)
PAGE = page_around(GRAPH, PASSAGES, "Ada")


def data_of(page: str) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_what_it_holds() -> None:
    data = data_of(PAGE)
    assert page_around(GRAPH, PASSAGES, "Ada") == PAGE, "the same index gives the same page"
    nodes = {node["id"]: node for node in data["nodes"]}
    assert (nodes["e:Ada"]["type"], nodes["e:Ada"]["about"], nodes["e:London"]["type"]) == (
        "person",
        "A mathematician.",
        "city",
    )
    assert [data["passages"][one.id]["parts"][0] for one in PASSAGES] == [one.text for one in PASSAGES]
    labels = {(edge["source"], edge["target"]): edge["label"] for edge in data["edges"]}
    assert labels["e:Ada", "e:London"] == "born in; lived in" and ("p:p0", "e:Ada") in labels
    assert data["start"] == "node=e%3AAda"


def test_a_question_begins_with_the_path_between_what_it_names(tmp_path: Path) -> None:
    build(tmp_path, CORPUS, names=["knowledge"])
    index = Index(tmp_path)
    data = page_data(index, for_question(index, "Did Ada Lovelace know of Missolonghi?"))
    assert {"e:Ada Lovelace", "e:Lord Byron", "e:Missolonghi"} <= set(data["path"])
    assert data["start"] == "passages=path" and any(id_.startswith("p:") for id_ in data["path"])


def test_untrusted_text_stays_text() -> None:
    tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            tags.append(tag)

    Reader().feed(PAGE)
    assert tags.count("script") == 2 and "img" not in tags
    data = re.sub(r".*id=\"data\">|</script>.*", "", PAGE, flags=re.S)
    assert "<" not in data and "\u2028" not in data and "__TITLE__" not in PAGE
    assert "<title>&lt;/script&gt;&lt;img" in page_around(GRAPH, PASSAGES, EVIL)


def test_what_turns_letters_around_is_spelt_out() -> None:
    page = fill("__TITLE__ __DATA__", "a\u202eb", "", "", {"DATA": inert(["x\u202egpj.exe\u2066", "\u05d0"])})
    assert "\u202e" not in page and page.startswith(r"a\u202eb ")
    assert json.loads(page.partition(" ")[2]) == [r"x\u202egpj.exe\u2066", "\u05d0"]


def test_it_needs_nothing_else_and_allows_only_its_own_script() -> None:
    (script,) = re.findall(r'<script type="module">(.*?)</script>', PAGE, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    assert f'Content-Security-Policy" content="{policy}"' in PAGE
    assert not re.search(r"(src|href)=[\"']?(https?:|/)", PAGE) and "@import" not in PAGE
    own = script[script.index("\n// What the views share") :]
    assert "innerHTML" not in own and not re.search(r"^import |^export |import\(", own, re.M)
