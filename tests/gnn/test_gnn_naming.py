from __future__ import annotations

from gnnrag.gnn.entity import NameFinder
from tests.helpers.each import each

NAMES = ("Her", "directors", "The D.I.", "Face/Off", "Be Cool", "Be", "Joy Smith's")
KB = NameFinder({name: i for i, name in enumerate(NAMES)})
TEXT = NameFinder({n: i for i, n in enumerate(["be cool", "joy smith", "malta", "of"])}, is_normalised=True)


@each(
    "text, name",
    [
        ("who are the directors of The D.I.", "The D.I."),
        ("which films share the directors of Face/Off?", "Face/Off"),
        ("who acted in Be Cool", "Be Cool"),  # the longest
        ("who are the directors", "directors"),
        ("who wrote be cool", "Be Cool"),  # in any case, where nothing is written so
        ("Joy Smith's", "Joy Smith's"),
    ],
)
def test_the_name_a_question_is_about(text: str, name: str) -> None:
    (found, (start, stop)), *_ = KB.find_all(text)
    assert found == name and text[start:stop].casefold() == name.casefold()


def test_several_names_do_not_overlap() -> None:
    found = TEXT.find_all("Was Joy Smith's film Be Cool shot in Malta?")
    assert [name for name, _ in found] == ["joy smith", "be cool", "malta"]
    assert TEXT.find_all("of what?") == [] and KB.find_all("") == []
