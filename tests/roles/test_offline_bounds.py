"""Questions and passages of 44 kB are analysed at once; ordinary ones as they always were."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import load_passages
from gnnrag.index.index import Index
from gnnrag.methods.dotrag.offline import NameReader
from gnnrag.retrievers.lightrag.keywords import OfflineKeywords
from gnnrag.roles.base import ReaderTask
from gnnrag.roles.candidates import clauses
from gnnrag.roles.offline_reader.reader import OfflineReader
from gnnrag.run.pipeline import Pipeline, open_index
from gnnrag.text.normalise import drop_qualifier
from gnnrag.text.sentences import MAX_QUESTION, MAX_SENTENCE, beginning, pieces, split_sentences
from gnnrag.types import Passage, Prediction, Question
from tests.helpers.each import each

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
LENGTH = 44_000
ATOMS = ("word ", "Word ", '"A b" ', "A", "A. ", "? ", "a, ", "1 ", " ", "and ", "U.S. ", "who is the ", "A's ")
METHODS = {
    "single": ("method=single",),
    "lightrag": ("method=single", "retriever=lightrag"),
    "bdtr": ("method=bdtr",),
    "mgranrag": ("method=mgranrag",),
    "graphsearch": ("method=graphsearch", "retriever=lightrag"),
}


def long(atom: str) -> str:
    return f"Who is {atom * (LENGTH // len(atom))}?"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index")


def pipeline(root: Path, *settings: str) -> Pipeline:
    given = [*settings, "roles=offline", f"index.root={root}", f"data.path={SAMPLE}", "index.embedder.model=hash"]
    config = load_config(EvaluateConfig, None, given)
    data = load_passages(SAMPLE)
    return Pipeline(config, open_index(config, data.name, data.passages))


@pytest.fixture(scope="module")
def index(root: Path) -> Index:
    return pipeline(root, "method=bdtr").index


# The two that take longest are the others' roles, asked more often.
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("mgranrag", "graphsearch")]


@each("name", ["single", "lightrag", "bdtr", *SLOW])
def test_a_long_question_blocks_nobody(name: str, root: Path) -> None:
    asked = pipeline(root, *METHODS[name])
    found: list[Prediction] = []
    began = time.process_time()  # one of them took 41 s
    questions = [Question(str(number), long(atom)) for number, atom in enumerate(ATOMS)]
    asyncio.run(asked.run(questions, lambda prediction, session: found.append(prediction)))
    assert time.process_time() - began < 1.5 * len(ATOMS)
    assert len(found) == len(ATOMS) and not [p.error for p in found if p.error]


@each("atom", ATOMS)
def test_keywords_names_and_clauses_of_a_long_question(atom: str, index: Index) -> None:
    graph = SimpleNamespace(names=["Word word", "A"], aliases=[(), ()])
    began = time.process_time()
    OfflineKeywords(index).find(long(atom))
    NameReader(graph).read(long(atom))
    clauses(long(atom)[:MAX_QUESTION])
    drop_qualifier(atom * LENGTH)
    drop_qualifier(" " * LENGTH + "x")
    assert time.process_time() - began < 2.0  # each was quadratic


@each("atom", [*ATOMS, "(", "a - ", "\n", "born in A, "])
def test_a_long_passage_is_read_at_once(atom: str) -> None:
    text = atom * (LENGTH // len(atom))
    passages = (Passage("p", "Foo", f"Foo {text}"), Passage("q", text[:LENGTH], "Foo was born in Rome."))
    began = time.process_time()
    OfflineReader().read(ReaderTask(Question("q", "Where was the director of film Foo born?"), passages))
    assert time.process_time() - began < 5.0
    assert max(map(len, split_sentences(text)), default=0) <= MAX_SENTENCE


def test_what_is_cut_is_cut_at_blanks_and_the_rest_stays_as_it_is() -> None:
    text = "one two three four"
    assert beginning(text, 18) is text and beginning(text, 10).split() == ["one", "two"]
    assert pieces(text, 8) == ["one two", "three", "four"] and pieces("x" * 9, 4) == ["xxxx", "xxxx", "x"]
    assert pieces("  ", 4) == [] and "".join(pieces("ab" * 5000)) == "ab" * 5000


@each(
    "title, bare",
    [
        ("Casablanca (film)", "Casablanca"),
        ("A (b) (c)", "A (b)"),
        ("A (b (c))", "A (b (c))"),
        ("(film)", "(film)"),
        (" A (x) \n", "A"),
        ("A)", "A)"),
        ("A (b) c", "A (b) c"),
        ("f()", "f"),
    ],
)
def test_qualifiers(title: str, bare: str) -> None:
    assert drop_qualifier(title) == bare
