"""Questions about tables: what a table says, and that it says nothing of what it does not hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unicodedata import normalize

import pytest

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents.passages import cut_document
from gnnrag.datasets.documents.readers import read_document
from gnnrag.roles.base import ReaderTask
from gnnrag.roles.tables import Table, TableReader, ask_table, parse_row, tables_of
from gnnrag.types import Passage, Question

CUSTOMERS = """customer,country,annual fee (EUR),since
Yorkshire Springs,United Kingdom,"9,000",2019-03-01
Oslo Vann AS,Norway,"12,500",2021-06-15
Bergen Kraft,Norway,"7,250",2020-01-10
Helsinki Vesi Oy,Finland,"11,000",2021-11-02
Total,,"39,750",
"""
STAFF = """name,role,joined,office,reports to
Tomasz Nowak,engineer,2018,Oslo,Ida Berg
Ida Berg,chief executive,2012,Oslo,Ada Moe
Karl Holm,engineer,2020,Leeds,Ida Berg
"""
FIRMS = """company,city,address,employees
Meridian Foods,Leeds,4 High Street,"1,240"
Corran Ltd,Oslo,Meridian Street 9,85
Aster,Bergen,1 Quay,310
"""
SHIPS = """name,yard,built,bought,weight (t),status
Alma,Holm Yard,1950,2001,9,laid up
Brisk,Quay & Sons,1961,1964,31,in service
Coot,Holm Yard,1935,1972,24,in service
"""
BOATS = """boat,weight,price
Duck,310 kg,$9
Eel,90 kg,$90
Fir,120 kg,$20
"""


def passages_of(folder: Path, name: str, text: str, **chunking: int) -> list[Passage]:
    path = folder / name
    path.write_text(text)
    (document,) = read_document(path)
    cut = cut_document(document, Chunking(**chunking), path.stem)
    return [replace(passage, id=f"{name}#{number}") for number, passage in enumerate(cut, start=1)]


def index_of(*passages: Passage) -> Any:
    known = {passage.id: passage for passage in passages}
    return SimpleNamespace(
        position={id_: at for at, id_ in enumerate(known)},
        lookup=lambda ids: tuple(known[i] for i in ids),
        matching=lambda condition: [at % 2 == 0 for at in range(len(known))],  # every other passage
    )


def table(folder: Path, name: str, text: str) -> Table:
    (found,) = tables_of(passages_of(folder, name, text), is_whole=True)
    return found


SAYS = [
    ("launches", "When was the Redshank built?", "2003", 1),
    ("launches", "How many survey launches are there?", "2", 2),
    ("launches", "Which vessels are longer than 12 m?", "Whimbrel; Godwit", 2),
    ("customers", "Which customers are in Norway?", "Oslo Vann AS; Bergen Kraft", 2),
    ("customers", "How many customers are in Norway?", "2", 2),
    ("customers", "How many customers do we have?", "4", 4),  # the total is none
    ("customers", "How many countries are there?", "3", 4),
    ("customers", "What is the annual fee of Yorkshire Springs?", "9,000 EUR", 1),
    ("customers", "What does Oslo Vann pay?", "12,500 EUR", 1),
    ("towns", "What is the population of Varn?", "5,000", 1),  # not that of 2020
    ("customers", "Which customer pays the highest fee?", "Oslo Vann AS", 1),
    ("customers", "What is the average fee of customers in Norway?", "9,875", 2),
    ("staff", "When did Tomasz join?", "2018", 1),
    ("staff", "Who is the chief executive?", "Ida Berg", 1),
    ("staff", "Who is an engineer?", "Tomasz Nowak; Karl Holm", 2),
    ("staff", "Who reports to Ida Berg?", "Tomasz Nowak; Karl Holm", 2),
    ("staff", "Who does Ida Berg report to?", "Ada Moe", 1),
    ("staff", "How many people report to Ida Berg?", "2", 2),
    ("firms", "How many employees does Corran have?", "85", 1),
    ("firms", "Where is Aster based?", "Bergen", 1),
    ("customers", "Which customers are not in Norway?", "Yorkshire Springs; Helsinki Vesi Oy", 2),
    ("customers", "How many customers in Norway pay more than 9000 euros?", "1", 1),
    ("customers", "How many customers outside Norway pay at least 9000 and less than 11000?", "1", 1),
    ("ships", "Which ship was built last?", "Brisk", 1),
    ("ships", "What is the oldest ship in service?", "Coot", 1),
    ("ships", "Which is heavier, the Alma or the Coot?", "Coot", 1),
    ("ships", "Which ships built by Holm Yard are in service?", "Coot", 1),
    ("boats", "How many boats have a weight of more than 100 kg?", "2", 2),
    ("boats", "Which boats cost less than $10?", "Duck", 1),
    ("ships", "Which ships were built before 1960 and bought after 1990?", "Alma", 1),
]
SILENT = [
    ("launches", "When was the Redshank sold?"),  # the only dates are of building
    ("launches", "When was the Godwit laid up?"),
    ("launches", "Where was the Whimbrel built?"),  # a year is no place
    ("launches", "Who sold the Redshank?"),
    ("boats", "How many boats have a weight of more than 2 tonnes?"),  # it is given in kg
    ("boats", "How many boats cost more than 10 euros?"),
    ("ships", "What is the average year in which the ships were built?"),  # 1,948.7 is no year
    ("ships", "What is the last ship?"),  # in which order?
    ("ships", "How many ships weigh more than 20 metres?"),
    ("customers", "How many customers pay more than 9000 dollars?"),
    ("firms", "How many employees does Meridian have?"),  # neither Meridian Foods nor what is in Meridian Street
    ("firms", "What is the revenue of Aster?"),
    ("staff", "When did Anna join?"),
    ("staff", "How many engineers were there in 2018?"),  # as many as before, and those who joined then
    ("staff", "How many employees are there?"),  # of the firm, there may be more
    ("staff", "When was Tomasz born?"),
    ("staff", "Who is the chief financial officer?"),
    ("customers", "Which customers are in Sweden?"),
    ("customers", "How many customers are there in each country?"),
    ("customers", "How many customers left in 2021?"),
    ("customers", "Who does Oslo Vann pay?"),
    ("customers", "What is the fee in Norway?"),  # there are two
    ("customers", "Is Oslo Vann in Norway?"),
]
LAUNCHES = """vessel,type,length (m),built,status
Whimbrel,research vessel,42.0,2017,active
Redshank,survey launch,11.0,2003,sold
Godwit,survey launch,12.5,1979,laid up
"""
TOWNS = 'town,population (2020)\nVarn,"5,000"\nOdda,70\n'
TEXTS = {
    "launches": LAUNCHES,
    "towns": TOWNS,
    "customers": CUSTOMERS,
    "staff": STAFF,
    "firms": FIRMS,
    "ships": SHIPS,
    "boats": BOATS,
}


@pytest.mark.parametrize(("name", "question", "text", "count"), SAYS)
def test_a_table_says(tmp_path: Path, name: str, question: str, text: str, count: int) -> None:
    asked = table(tmp_path, f"{name}.csv", TEXTS[name])
    answer = ask_table(question, asked)
    assert answer is not None and answer.text == text and len(answer.citations) == count
    for citation in answer.citations:  # each of a row that is there
        (row,) = [row for row in asked.rows if row.text == citation.sentence]
        assert citation.passages == (row.passage.id,) and citation.sentence in row.passage.text


@pytest.mark.parametrize(("name", "question"), SILENT)
def test_a_table_says_nothing_of_what_it_does_not_hold(tmp_path: Path, name: str, question: str) -> None:
    assert ask_table(question, table(tmp_path, f"{name}.csv", TEXTS[name])) is None


def ask(index: Any, question: str, *passages: Passage, condition: str | None = None) -> str | None:
    answer = TableReader(index).answer(ReaderTask(Question("q", question), passages, "", None), condition)
    return answer and answer.text


def test_rows_that_were_not_retrieved_are_counted_and_never_a_part(tmp_path: Path) -> None:
    rows = "".join(f"firm {n},{'Norway' if n % 3 else 'Sweden'}\n" for n in range(300))
    passages = passages_of(tmp_path, "partners.csv", f"partner,country\n{rows}")
    question = "How many partners are in Norway?"
    assert ask(index_of(*passages), question, passages[70]) == "200"
    assert ask(index_of(*passages), question, passages[70], condition="even") == "100"
    assert ask(None, question, *passages) is None  # what is shown need not be all
    assert ask(None, "What is the country of firm 3?", passages[3]) == "Sweden"


@pytest.mark.parametrize("overlap", [0, 15])
def test_a_table_between_paragraphs_is_one_whatever_passages_it_is_cut_into(tmp_path: Path, overlap: int) -> None:
    rows = "\n".join(f"| boat {n} | {n + 10} | {'blue' if n % 2 else 'red'} |" for n in range(40))
    text = (
        f"The harbour lets these boats:\n\n| boat | length | colour |\n|---|---|---|\n{rows}\n\nNote: all are insured."
    )
    passages = passages_of(tmp_path, "boats.md", text, target_words=40, overlap_words=overlap)
    assert len(passages) > 5 and len({passage.title for passage in passages}) == 1
    index = index_of(*passages)
    assert ask(index, "How many boats are blue?", passages[3]) == "20"
    assert ask(index, "Which boat has the largest length?", passages[0]) == "boat 39"


def test_two_tables_that_say_different_things_say_nothing(tmp_path: Path) -> None:
    old, new = (passages_of(tmp_path, f"fees {y}.csv", f"club,fee\nRowers,{y}\nDivers,7\n") for y in (2023, 2024))
    index = index_of(*old, *new)
    assert ask(index, "What is the fee of Rowers?", old[0], new[0]) is None
    assert ask(index, "What is the fee of Divers?", old[1], new[1]) == "7"


def test_a_table_that_was_not_retrieved_answers_where_another_of_its_file_was(tmp_path: Path) -> None:
    text = (
        "# Clubs\n\n| club | fee |\n|---|---|\n| Rowers | 9 |\n\n# Parts\n\n| part | price |\n|---|---|\n| Oar | 4 |\n"
    )
    passages = passages_of(tmp_path, "lists.md", text)
    assert ask(index_of(*passages), "What is the price of the oar?", passages[0]) == "4"


def test_a_cell_that_is_written_like_a_row_stays_one_cell(tmp_path: Path) -> None:
    text = 'tool,note\nslane,"sharp; from: Kerry"\nspade,\n'
    asked = table(tmp_path, "tools.csv", text)
    assert [row.cells for row in asked.rows] == [{"tool": "slane", "note": "sharp, from: Kerry"}, {"tool": "spade"}]
    assert parse_row("Peat is cut by hand.") == {}


def test_accents_that_a_mac_writes_apart_are_those_of_a_question(tmp_path: Path) -> None:
    text = normalize("NFD", "café,town\nChez Béa,Orléans\nLe Dôme,Nîmes\n")
    (first, *_) = passages = passages_of(tmp_path, "cafes.csv", text)
    assert first.text == "café: Chez Béa; town: Orléans" and first.metadata == {"café": "Chez Béa", "town": "Orléans"}
    assert ask(index_of(*passages), "Which café is in Nîmes?", first) == "Le Dôme"
