from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.pages import fill, inert
from gnnrag.pages.graph import around_entity, page_data, render_page
from gnnrag.types import Passage

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
PAGE = render_page(GRAPH, around_entity(GRAPH, "Ada"), PASSAGES)


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])


def test_the_data_survive():
    data = data_of(PAGE)
    assert data == page_data(GRAPH, around_entity(GRAPH, "Ada"), PASSAGES)
    assert render_page(GRAPH, around_entity(GRAPH, "Ada"), PASSAGES) == PAGE, "the same index gives the same page"
    ada = data["nodes"][0]
    assert (ada["name"], ada["type"], ada["role"], ada["degree"]) == ("Ada", "person", "focus", 3)
    assert ada["description"] == "A mathematician."
    assert [data["passages"][str(p["at"])]["text"] for p in ada["passages"]] == [p.text for p in PASSAGES]
    edge = next(e for e in data["edges"] if data["nodes"][e["b"]]["name"] == "London")
    assert [s["label"] for s in edge["statements"]] == ["born in", "lived in"]
    assert edge["label"] == "born in (+1)" and edge["passages"] == [{"at": 0}]
    assert [row["name"] for row in data["legend"]] == ["city, place", "person", "other or unknown"]


def test_untrusted_text_stays_text():
    tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)

    Reader().feed(PAGE)
    assert tags.count("script") == 2 and "img" not in tags
    assert "<img" not in PAGE and PAGE.count("</script") == 2 and "\u2028" not in PAGE
    named = sum(PAGE.count(f'"{key}": "__HASH__"') for key in ("name", "label", "tail"))
    assert "__TITLE__" not in PAGE and PAGE.count("__HASH__") == named
    assert "<title>&lt;/script&gt;&lt;img" in render_page(GRAPH, around_entity(GRAPH, EVIL), PASSAGES)


def test_what_turns_letters_around_is_spelt_out():
    page = fill("__TITLE__ __DATA__", "a\u202eb", "", "", {"DATA": inert(["x\u202egpj.exe\u2066", "\u05d0"])})
    assert "\u202e" not in page and page.startswith(r"a\u202eb ")
    assert json.loads(page.partition(" ")[2]) == [r"x\u202egpj.exe\u2066", "\u05d0"]


def test_it_needs_nothing_else_and_allows_only_its_own_script():
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', PAGE)[1]
    script = re.findall(r"<script>(.*?)</script>", PAGE, re.S)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert not re.search(r"(src|href)=[\"']?https?:", PAGE) and "@import" not in PAGE
    assert "innerHTML" not in script and "eval(" not in script


def test_a_sentence_is_written_on_an_edge_as_what_it_says_of_the_end():
    sentence = "Solaris is a Soviet film directed by Andrei Tarkovsky"
    graph = fold([Extraction(triples=(("Solaris", sentence, "Andrei Tarkovsky"), ("Solaris", "Soviet", "Soviet")),
                             is_sentences=True)], hyperedges="none")  # fmt: skip
    data = page_data(graph, around_entity(graph, "Solaris"), [Passage("p", "Solaris", sentence)])
    assert [edge["label"] for edge in data["edges"]] == ["film directed by", ""]
    assert data["edges"][0]["statements"][0]["text"] == sentence
    assert [row["name"] for row in data["legend"]] == ["asked for", "neighbour"], "no types: colours tell roles"


def test_a_term_is_a_kind_of_the_one_that_it_ends_with():
    said = "Papillary thyroid cancers grow in the neck"
    triples = (("papillary thyroid cancers", said, "thyroid cancer"), ("neck", said, "thyroid cancer"))
    graph = fold([Extraction(triples=triples, is_sentences=True)], hyperedges="none")
    data = page_data(graph, around_entity(graph, "thyroid cancer"), [Passage("p", "", said)])
    ends = {data["nodes"][e["a"] or e["b"]]["name"]: e["label"] for e in data["edges"]}
    assert ends["papillary thyroid cancers"] == "a kind of" != ends["neck"]
