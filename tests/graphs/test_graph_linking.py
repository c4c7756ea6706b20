"""Names in questions."""

from __future__ import annotations

from gnnrag.graphs.hierarchy import build_hierarchy
from gnnrag.graphs.linking import TitleMatcher, link_question
from gnnrag.text.analyse import analyse
from gnnrag.types import Passage
from tests.helpers.each import each

PASSAGES = [
    Passage("0", "Arrête ton cinéma", "Arrête ton cinéma is a comedy directed by Diane Kurys."),
    Passage("1", "Agni (2004 film)", "Agni is a film directed by Swapan Saha for Delta Pictures."),
    Passage("2", "Swapan Saha", "Swapan Saha is a director born in Ajmer."),
    Passage("3", "Boris Vladimirovich", "Boris Vladimirovich was a duke. He met the Die Band."),
    Passage("4", "Film", "A film is a sequence of images."),
]
GRAPH = build_hierarchy(analyse(PASSAGES))
TITLES = TitleMatcher(GRAPH, [p.title for p in PASSAGES])


def names(text: str) -> dict[str, str | None]:
    return {n.key: n.title.form if n.title else None for n in link_question(text, GRAPH, TITLES).names}


@each(
    "text, expected",
    [
        (
            "Which film has the director born later, Arrête Ton Cinéma or Agni (2004 Film)?",
            {"arrete ton cinema": "arrete ton cinema", "agni 2004 film": "agni 2004 film"},
        ),
        ("where was the director of arrete ton cinema born", {"arrete ton cinema": "arrete ton cinema"}),
        ("Where was Swapan Saha born?", {"swapan saha": "swapan saha"}),
        ("Swapan Saha's birthplace?", {"swapan saha": "swapan saha"}),
        ("What did Delta Pictures make?", {"delta pictures": None}),
        ("Which film did Swapan Saha make?", {"swapan saha": "swapan saha"}),  # not the article on film
        ("what is a film", {"film": "film"}),
        (
            "Did Boris Vladimirovich and Swapan Saha meet?",
            {"boris vladimirovich": "boris vladimirovich", "swapan saha": "swapan saha"},
        ),
        ("Who is it?", {}),
        ("", {}),
    ],
)
def test_exact_names(text, expected):
    assert names(text) == expected


@each(
    "text, form",
    [
        ("Where was Swapan Sahaa born?", "swapan saha"),
        ("Where was Boris Vladimirovitch born?", "boris vladimirovich"),
        ("Where did Boris of Vladimirovitch die?", "boris vladimirovich"),
    ],
)
def test_misspelt_names_are_corrected_to_titles(text, form):
    linked = link_question(text, GRAPH, TITLES)
    assert [n.title.form for n in linked.names if n.title] == [form]
    assert all(n.title.confidence < 1 for n in linked.names if n.title)
    assert linked.rest in (("born",), ("die",))
    linked = link_question("Where was the director of Agni (2004 film) born?", GRAPH, TITLES)
    assert linked.rest == ("director", "born"), "what is left is what is asked"
