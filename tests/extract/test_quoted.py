"""Names in quotation marks: what they delimit, and whose the punctuation is."""

from gnnrag.config import ExtractConfig
from gnnrag.extract.base import Extraction
from gnnrag.extract.offline import OfflineExtractor, quoted_names
from gnnrag.text.analyse import analyse
from gnnrag.types import Passage
from tests.helpers.each import each


@each(
    "sentence, names",
    [
        ("“10 Things I Hate About You” carries the tag “high school”.", ["10 Things I Hate About You", "high school"]),
        ('Its tags are "bd-r" and "heart of darkness".', ["bd-r", "heart of darkness"]),
        ("“Monsters, Inc.” was directed by Ana.", ["Monsters, Inc."]),  # its own full stop: the sentence goes on
        ("Ana directed “Monsters, Inc.”.", ["Monsters, Inc."]),
        ("Ana directed “Night Harbour.”", ["Night Harbour"]),  # the sentence's, as in American usage
        ("Called “Night Harbour,” it came out late.", ["Night Harbour"]),
        ("“Night Harbour” and “Night Harbour”", ["Night Harbour"]),
        ("“r” is a tag of “50/50”.", ["r", "50/50"]),
        ("He said “we will all go down to the harbour tonight”.", []),  # speech
        ('An odd " mark "here" hides what is quoted.', []),
        ("The word “the” and “…” name nothing.", []),
        ('Between "Ana" and "Eva" stands no name.', ["Ana", "Eva"]),
        ("Nothing is quoted here.", []),
    ],
)
def test_quoted_names(sentence, names):
    assert quoted_names(sentence) == names


def test_the_offline_extractor_joins_them_with_the_topic():
    passage = Passage("p", "Night Harbour", "Night Harbour is a film. It carries the tag “fog” and is set in Oslo.")
    (found,) = OfflineExtractor(ExtractConfig()).extract([passage], analyse([passage], "blank:en"))
    said = "It carries the tag “fog” and is set in Oslo."
    assert [t for t in found.triples if t[1] == said] == [
        ("Night Harbour", said, "Oslo"),
        ("Night Harbour", said, "fog"),
    ]
    assert "fog" in found.entities
    found = Extraction(("a", "b"), (("a", "r", "b"),), statements=("a is r of b.",), names_are_ids=True)
    assert Extraction.from_json(found.to_json()) == found
