"""Which words of a text get another name, and what names are like."""

import random

import pytest

from gnnrag.clones.names import Namer, Word, first_names
from gnnrag.clones.words import KEPT, Lexicon, Meant, Writer, asked_of, filled, tokenise
from gnnrag.errors import GnnragError
from gnnrag.text.normalise import fold, words
from gnnrag.types import Passage
from tests.helpers.each import each


class Set:
    """Passages, and their texts and others under new names."""

    def __init__(self, *passages, texts=()):
        self.passages = [Passage(f"p{i}", title, text) for i, (title, text) in enumerate(passages)]
        self.lexicon = Lexicon(self.passages, texts)
        self.writer = Writer(self.lexicon, [])
        self.meant = [self.lexicon.meant_by(passage) for passage in self.passages]
        pairs = list(zip(self.passages, self.meant, strict=True))
        self.rows = [tuple(self.writer.text(f"{p.title}\n{p.text}", m)) for p, m in pairs]
        self.asked = [tuple(self.writer.text(text, asked_of(self.meant))) for text in texts]
        self.strange = [tuple(self.writer.text(text, Meant())) for text in texts]
        self.namer = Namer(self.lexicon.words, self.lexicon.taken, 0)
        self.names = self.namer.names(0)

    def title(self, i=0):
        return self.text(self.rows[i]).partition("\n")[0]

    def body(self, i=0):
        return self.text(self.rows[i]).partition("\n")[2]

    def text(self, template):
        return filled(template, ["", *self.names])


BRAND = (
    "Lena Brandt",
    "Lena Brandt (born 2 May 1950 in Hallein) is an Austrian painter. Brandt's brother ran a brand.",
)


def test_parts_of_a_name_change_as_the_whole_does_and_the_rest_stays():
    texts = ["where was lena brandt born", "LENA BRANDT", "The Brandts' house", "Lena brand May 2"]
    made = Set(BRAND, texts=texts)
    first, last = made.title().split()
    town = made.body().split(" in ")[1].split(")")[0]
    expected = f"{first} {last} (born 2 May 1950 in {town}) is an Austrian painter. {last}'s brother ran a brand."
    assert made.body() == expected and {first, last, town}.isdisjoint({"Lena", "Brandt", "Hallein"})
    lower, upper, plural, rest = map(made.text, made.asked)
    assert lower == f"where was {first.lower()} {last.lower()} born" and upper == f"{first} {last}".upper()
    assert plural == f"The {last}s' house" and rest == f"{first} brand May 2"
    assert (first[0], last[0], town[0]) == ("L", "B", "H")  # initials and acronyms stay true


def test_a_common_word_is_a_name_only_where_it_is_sure():
    will = (
        "Will Young (born 1979) is an English singer. Young sang in May. Will he come? Young people will. A young man."
    )
    film = "The film was directed by Will Young. Young people saw it. One man will say so."
    made = Set(("Will Young", will), ("A Film", film), texts=["Was Will Young young?", "will Young people sing?"])
    name = made.title().split()[1]
    assert made.title() == f"Will {name}" and name != "Young"
    assert made.body().startswith(f"Will {name} (born 1979) is an English singer. {name} sang in May. Will he come?")
    assert made.body().endswith(" A young man.")
    assert f"directed by Will {name}." in made.body(1) and made.body(1).endswith("One man will say so.")
    assert made.text(made.asked[0]) == f"Was Will {name} young?"
    assert made.text(made.strange[1]) == "will Young people sing?"


def test_titles_of_common_words_get_one_of_their_own_where_they_are_meant():
    local = ("Local Hero", "Local Hero is a 1983 film. The local hero was a hero of the locals.")
    other = ("A Fog", "A fog is a cloud. It came after Local Hero, with fog.")
    made = Set(local, other, texts=["Who directed local hero?", "Who is the local hero?"])
    word = made.title().split()[1]
    assert made.title() == f"Local {word}" and word[0] == "H" and word != "Hero"
    assert made.body() == f"Local {word} is a 1983 film. The local hero was a hero of the locals."
    assert f"after Local {word}, with " in made.body(1)
    assert made.text(made.asked[0]) == f"Who directed local {word.lower()}?"  # of this film
    assert made.text(made.strange[1]) == "Who is the local hero?"
    fog = made.title(1).split()[1]
    assert made.body(1).startswith(f"A {fog.lower()} is a cloud.") and made.body(1).endswith(f"with {fog.lower()}.")


def test_people_who_share_a_first_name_and_of_whom_no_other_name_is_their_own():
    anne = ("Anne of Austria", "Anne of Austria was a queen of France. Anne died in 1666.")
    other = ("Anne of Denmark", "Anne of Denmark was a queen of Scotland, after Anne of Austria.")
    made = Set(anne, other)
    name = made.title().split()[0]
    assert name != "Anne" and made.title(1) == f"{name} of Denmark"
    assert made.body() == f"{name} of Austria was a queen of France. {name} died in 1666."


def test_a_country_that_is_a_title_is_renamed_with_its_people_and_others_are_not():
    sweden = ("Sweden", "Sweden is a country north of Germany. The Swedish king rules the Swedes.")
    made = Set(sweden, ("Kalmar", "Kalmar is a Swedish town founded by a German. Swedish is spoken."))
    country = made.title()
    stem = country.removesuffix("ia")
    assert country != stem and f"The {stem}ian king" in made.body() and "north of Germany" in made.body()
    assert f"is a {stem}ian town founded by a German. {stem}ian is spoken." in made.body(1)


def test_first_names_are_exchanged_for_those_of_the_same_gender_and_letter():
    he, she = ["Max", "Mark", "Milo", "Moritz"], ["Maria", "Mona", "Mila", "Meret"]
    people = [(f"{n} {n}berg", f"{n} {n}berg was a poet. He wrote. His work. {n}.") for n in he]
    people += [(f"{n} {n}feld", f"{n} {n}feld was an actress. She sang her songs. {n}.") for n in she]
    people += [(title.replace("berg", "dorf").replace("feld", "bach"), text) for title, text in people]
    made = Set(*people)
    first = [made.title(i).split()[0] for i in range(16)]
    assert set(first[:4]) == set(he) and set(first[4:8]) == set(she) and first[8:] == first[:8]
    assert first_names({"max": "he", "mona": "she", "mark": "he"}, 2) == {"max": "he m", "mark": "he m"}


def test_forms_that_differ_in_accents_do_so_after_and_read_alike():
    made = Set(("Sjöström", "Victor Sjöström or Sjostrom, SJÖSTRÖM, sjöström."), texts=["Victor Sjostrom"])
    forms = [token.form for token in tokenise(made.body())][1:]
    assert len({fold(form) for form in forms if form != "or"}) == 1 and len(set(forms)) == 5
    assert fold(made.text(made.asked[0])).split()[1] == fold(forms[0])


@each("text", ["December 5, 1830", "the 1st of May, 3.5 km", "yes", "no", "French", "World War II", "Monday", "U.S."])
def test_what_stays(text):
    made = Set(BRAND, texts=[text])
    assert made.text(made.asked[0]) == text
    assert "may" in KEPT and "brandt" not in KEPT


# --------------------------------------------------------------------------------------------------------------- names
def drawn(count):
    rng = random.Random(2)
    heads, tails = ("br", "st", "l", "m", "kr", "x", "a", "é", "я"), ("andt", "olm", "ine", "egard", "opov", "i")
    keys = sorted(
        {rng.choice(heads) + rng.choice("aeiou") + rng.choice("lnrt") + rng.choice(tails) for _ in range(count)}
    )
    kinds = ("surname", "place", "first", "other", "country")
    endings = {"country": "ia"}
    return [
        Word(key.title(), key, kind, stem=key if kind in endings else "", ending=endings.get(kind, ""))
        for key, kind in zip(keys, kinds * len(keys), strict=False)
    ]


def test_no_coined_name_comes_twice_in_any_clones_or_is_a_word_of_the_set():
    made = drawn(40)
    taken = {word.key for word in made} | {"brandt", "bolovic", "stolia"}
    namer = Namer(made, taken, 5)
    names = [name for number in range(600) for name in namer.names(number)]
    assert len({fold(name) for name in names}) == len(names) == 600 * len(made)
    assert not {fold(name) for name in names} & taken
    far = namer.names(1500)
    assert len(set(far)) == len(made) and set(far).isdisjoint(names) and max(map(len, far)) < 25
    with pytest.raises(GnnragError, match=r"too few names .* for so many clones; ask for fewer"):
        namer.names(10**9)
    assert all(words(name) == [fold(name)] for name in names[:1000])


def test_names_are_turned_back():
    made = drawn(30)
    namer = Namer(made, {word.key for word in made}, 0)
    names = namer.names(3)
    text = ", ".join(names) + " and Others"
    assert namer.restore(text, names) == ", ".join(word.form for word in made) + " and Others"
    with pytest.raises(GnnragError, match="two words become 'Twice'"):
        namer.restore("x", ["Twice"] * len(made))
