"""`training/make_rows.py`: rows of thoughts and verdicts in every form that sets record them in; what gives none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.errors import DataError
from gnnrag.training.language_rows import reply_of
from gnnrag.training.rows import ThoughtsRow, VerifierRow, read_rows
from training.make_rows import main

TITLES = ("Solaris", "Andrei Tarkovsky", "Paris", "Oslo", "Rome")
BIRTH = {
    "id": "q1", "question": "Where was the director of Solaris born?", "answers": ["Zavrazhye"], "gold": ["p0", "p1"],
    "evidence": [["Solaris", "director", "Andrei Tarkovsky"], ["Andrei Tarkovsky", "place of birth", "Zavrazhye"]],
    "sub_questions": [{"question": "Who directed Solaris?"}, {"question": "Where was Andrei Tarkovsky born?"}],
}  # fmt: skip


def write_set(folder: Path, *questions: dict) -> list[str]:
    folder.mkdir()
    passages = [{"id": f"p{i}", "title": title, "text": f"{title} is known."} for i, title in enumerate(TITLES)]
    for name, rows in (("corpus", passages), ("questions.train", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [f"out={folder}/rows.jsonl", f"sets.toy.path={folder}", "sets.toy.split=train"]


def test_each_hop_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unlinked = {**BIRTH, "id": "q2", "sub_questions": BIRTH["sub_questions"][:1]}
    main("thoughts", *write_set(tmp_path / "set", BIRTH, unlinked), "asked=0")
    first, second = read_rows(tmp_path / "set" / "rows.jsonl", ThoughtsRow)
    assert first.fast == "Who directed Solaris?" and first.slow is None, "the second would name the director"
    assert second.fast == "Where was Andrei Tarkovsky born?" and second.passages[0].title == "Solaris"
    assert "left out, unlinked: 1" in capsys.readouterr().out
    with pytest.raises(DataError, match="toy"):
        main("thoughts", *write_set(tmp_path / "other", unlinked))


PLAIN = {"id": "q", "question": "Did the director of Solaris die in Rome?", "answers": ["no"], "gold": ["p0"]}
SEARCHES = [
    {"thought": "a", "action": "search", "argument": "Solaris director", "passage": "p0"},
    {"thought": "b", "action": "search", "argument": "Andrei Tarkovsky death", "passage": "p1"},
    {"thought": "c", "action": "finish", "argument": "no", "observation": "reward = True"},
]
OBSERVED = [{k: v for k, v in step.items() if k != "passage"} | {"observation": "He directed it."} for step in SEARCHES]
DECOMPOSED = [{"question": "Who directed Solaris?", "answer": "Andrei Tarkovsky directed it."},
              {"question": "Where did Andrei Tarkovsky die?", "answer": "He died in Paris."}]  # fmt: skip
HUMAN = [{"question": "Who directed Solaris?", "answer": "Andrei Tarkovsky", "gold": "p0"},
         {"question": "Where did #1 die?", "answer": "Paris", "gold": "p1"}]  # fmt: skip


@pytest.mark.parametrize(
    "fields, teacher, queries, shown",
    [
        ({"trace": SEARCHES, "model": "GPT-4", "correct": True}, "GPT-4",
         ["Solaris director", "Andrei Tarkovsky death"], "Solaris is known."),
        ({"gpt4_react": [{"model": "GPT-4", "correct": True, "steps": OBSERVED}]}, "GPT-4",
         ["Solaris director", "Andrei Tarkovsky death"], "He directed it."),
        ({"llm_decompositions": [{"model": "GPT-4", "correct": True, "sub_questions": DECOMPOSED}]}, "GPT-4",
         ["Who directed Solaris?", "Where did Andrei Tarkovsky die?"], "Andrei Tarkovsky directed it."),
        ({"decomposition": HUMAN}, "people",
         ["Who directed Solaris?", "Where did Andrei Tarkovsky die?"], "Solaris is known."),
        ({"decomposition": [{"question": "Who directed Solaris?"}, {"question": "Where did #1 die?"}]}, "people",
         ["Who directed Solaris?"], None),
    ],
)  # fmt: skip
def test_every_form_of_steps_gives_rows(
    tmp_path: Path, fields: dict, teacher: str, queries: list[str], shown: str | None
) -> None:
    main("thoughts", *write_set(tmp_path / "set", {**PLAIN, **fields}), "asked=1")
    rows = read_rows(tmp_path / "set" / "rows.jsonl", ThoughtsRow)
    assert [row.fast for row in rows] == queries and {row.teacher for row in rows} == {teacher}
    assert [row.earlier for row in rows] == [tuple(queries[:n]) for n in range(len(queries))]
    assert all(reply_of(row).startswith(f"Fast Thought: {row.fast}") for row in rows)
    if shown:
        assert rows[1].passages[0].text == shown


@pytest.mark.parametrize(
    "fields",
    [
        {"trace": SEARCHES, "model": "GPT-4", "correct": False},
        {"llm_decompositions": [{"model": "GPT-4", "correct": False, "sub_questions": DECOMPOSED}]},
        {"trace": ["A sentence of a chain of thought."], "model": "human"},
    ],
)
def test_what_went_wrong_teaches_nothing(tmp_path: Path, fields: dict) -> None:
    with pytest.raises(DataError, match="toy"):
        main("thoughts", *write_set(tmp_path / "set", {**PLAIN, **fields}))


def test_verdicts_are_rows_of_people_and_of_models(tmp_path: Path) -> None:
    verdicts = {"gpt-4": {"label": "not_supported"}, "gpt-3.5": {"label": "partially_supported"}}
    claim = {**PLAIN, "type": "claim", "answers": ["supported"], "trace": [{"passage": "p0", "judgements": verdicts}]}
    main("verifier", *write_set(tmp_path / "set", claim), "shown=3")
    rows = {row.teacher: row for row in read_rows(tmp_path / "set" / "rows.jsonl", VerifierRow)}
    assert {name: row.selected for name, row in rows.items()} == {"people": ("p0",), "gpt-4": (), "gpt-3.5": ("p0",)}
    assert all(
        row.gold == ("p0",) and len(row.passages) == 3 and row.chain == PLAIN["question"] for row in rows.values()
    )
