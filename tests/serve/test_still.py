"""The graph view as one file: what is in it, and what cannot happen in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import DataError
from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.index.index import Index
from gnnrag.serve.still import render_page
from gnnrag.types import Passage
from tests.helpers.drawn import page_around
from tests.helpers.indexes import CORPUS, build

EVIL = "</script><img src=x onerror=\"document.title='hacked'\">"
PASSAGES = [
    Passage("p0", "Ada", "Ada was born in London. __DATA__ __SCRIPT__ & more"),
    Passage("p1", EVIL, f"{EVIL} <!-- <script> \u2028 and </ScRiPt >."),
]
DETAILS = (EntityRecord("Ada", "person", "A mathematician."), EntityRecord("London", "city|place", ""))
TRIPLES = (("Ada", "born_in", "London"), ("Ada", "lived in", "London"), ("Ada", EVIL, "__HASH__"))
EXTRACTIONS = [
    Extraction(entities=("Ada",), triples=TRIPLES, details=DETAILS),
    Extraction(triples=((EVIL, "knows", "Ada"),)),
]
GRAPH = fold(EXTRACTIONS, hyperedges="none")
PAGE = page_around(GRAPH, PASSAGES, "Ada")


def data_of(page: str) -> Any:
    match = re.search(r'id="data">(.*?)</script>', page, re.S)
    assert match
    return json.loads(match[1])


def test_what_it_holds() -> None:
    data = data_of(PAGE)
    nodes = {node["id"]: node for node in data["nodes"]}
    assert (nodes["e:Ada"]["type"], nodes["e:Ada"]["about"]) == ("person", "A mathematician.")
    assert nodes["e:London"]["type"] == "city"
    assert [data["passages"][passage.id]["parts"][0] for passage in PASSAGES] == [p.text for p in PASSAGES]
    labels = {(edge["source"], edge["target"]): edge["label"] for edge in data["edges"]}
    assert labels["e:Ada", "e:London"] == "born in; lived in" and ("p:p0", "e:Ada") in labels
    assert data["start"] == "node=e%3AAda"


@pytest.mark.parametrize("stage", ["knowledge", "hierarchy"])
def test_a_question_begins_with_what_it_names(tmp_path: Path, stage: str) -> None:
    build(tmp_path, CORPUS, names=[stage])
    data = data_of(render_page(Index(tmp_path), question="Did Ada Lovelace know of Missolonghi?"))
    assert {"e:Ada Lovelace", "e:Missolonghi"} <= set(data["path"]) and data["start"] == "passages=path"
    assert any(node["id"] == "e:Lord Byron" for node in data["nodes"])
    with pytest.raises(DataError, match="nobody"):
        render_page(Index(tmp_path), entity="nobody at all")


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


def test_it_needs_nothing_else_and_allows_only_its_own_script() -> None:
    (script,) = re.findall(r'<script type="module">(.*?)</script>', PAGE, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    assert f'Content-Security-Policy" content="{policy}"' in PAGE
    assert not re.search(r"(src|href)=[\"']?(https?:|/)", PAGE) and "@import" not in PAGE
    own = script[script.index("\n// What the views share") :]
    assert "innerHTML" not in own and not re.search(r"^import |^export |import\(", own, re.M)
