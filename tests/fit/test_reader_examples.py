"""What the reader learns from: shown passages, aligned answers, single hops, the threshold."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnrag.errors import ConfigError
from gnnrag.metrics.answer import normalise_answer
from gnnrag.roles.comparing import clean
from gnnrag.roles.tuned.span_items import WindowMaker
from gnnrag.training.config import FoldConfig
from gnnrag.training.reader import (
    ReaderQuestion,
    ReaderSet,
    ReaderSetConfig,
    ShownConfig,
    draw_shown,
    make_example,
    single_hops,
    windows_learned,
)
from gnnrag.types import GoldHop, Passage, Question
from tests.helpers.tuned_reader import PASSAGES, QUESTIONS, network_config

QUESTION = Question(
    "q",
    "Where did the father of Ada Lovelace die?",
    ("Missolonghi", "Mesolongi"),
    gold=("a", "b"),
    decomposition=(
        GoldHop("Ada Lovelace >> father", "Lord Byron", "a"),
        GoldHop("Where did #1 die?", "Missolonghi", "b"),
    ),
    evidence=(("Lord Byron", "place of death", "Missolonghi"),),
)


def test_hops_are_filled_in_and_stand_in_their_own_passage() -> None:
    first, second, triple = single_hops(QUESTION, ("c",), {p.id: p.title for p in PASSAGES})
    assert first.text == "Ada Lovelace >> father" and first.gold == ("a",)
    assert second.text == "Where did Lord Byron die?" and second.answers == ("Missolonghi",) and second.gold == ("b",)
    assert triple.text == "Lord Byron >> place of death" and triple.gold == ("b",)
    opened: Any = SimpleNamespace(questions={"q": QUESTION}, retrieved={"q": ("c",)})
    assert ReaderSet.whole(opened, "q").final == ("b",)  # the last hop's passage holds the answer


def test_shown_passages_follow_from_the_draw_and_hold_the_evidence() -> None:
    asked = ReaderQuestion("?", ("x",), ("a", "b"), ("b",), ("c", "a", "d", "e", "f"))
    config = ShownConfig(least=2, most=4)
    drawn = [draw_shown(asked, config, np.random.default_rng(i)) for i in range(200)]
    assert drawn == [draw_shown(asked, config, np.random.default_rng(i)) for i in range(200)]
    assert all("b" in ids and len(ids) <= 4 and len(set(ids)) == len(ids) for ids in drawn)
    assert all("a" in ids for ids in drawn) and {ids.index("b") for ids in drawn} == {0, 1, 2, 3}


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_the_answer_is_found_in_its_evidence_alone(tmp_path: Path, number: int) -> None:
    asked, maker = QUESTIONS[number], WindowMaker(network_config(tmp_path))
    example = make_example(asked, PASSAGES, maker)
    wanted = {normalise_answer(a) for a in asked.answers}
    spans = [example.item.candidate(tuple(row)) for row in example.spans.tolist()]
    assert {one.key for one in spans if one} == (wanted if asked.answers != ("yes",) else set())
    for window, first, last in example.spans:
        one = example.item.windows[window]
        assert PASSAGES[one.passage].id in asked.final
        start, end = one.spans[first - one.first][0], one.spans[last - one.first][1]
        assert normalise_answer(clean(PASSAGES[one.passage].text)[start:end]) in wanted
    assert len(example.spans) > 0 or asked.answers == ("yes",)


def test_the_encoder_learns_from_windows_with_the_answer_and_some_without(tmp_path: Path) -> None:
    maker = WindowMaker(network_config(tmp_path))
    asked = ReaderQuestion("Where was she born?", ("Missolonghi",), ("b",), ("b",))
    example = make_example(asked, PASSAGES, maker)
    assert example.beside == {2}  # its title and text have the word, but are no evidence
    for seed in range(8):
        drawn = windows_learned(example, 1, np.random.default_rng(seed))
        passages = [w.passage for w in drawn.item.windows]
        assert passages[0] == 1 and len(passages) == 2 and passages[1] in (0, 3)
        assert drawn.spans[:, 1:].tolist() == example.spans[:, 1:].tolist() and not drawn.spans[:, 0].any()


def test_what_is_left_out_must_exist() -> None:
    own = ReaderSetConfig(leave_out=["q0", "p1"])
    opened: Any = SimpleNamespace(passages=[], questions=[Question("q0", "?", ("x",))])
    with pytest.raises(ConfigError, match=r"sets\.toy\.leave_out.*'p1'"):
        ReaderSet("toy", own, opened, None, (), None).divide(FoldConfig(), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [{"held_out": 10}, {"halved": "a"}])
def test_articles_train_validate_or_report_as_a_whole(config: dict[str, Any]) -> None:
    passages = [Passage(f"p{i}", f"t{i // 2}", "x") for i in range(80)]
    questions = [Question(f"q{i}", f"{i}?", ("x",), gold=(f"p{i}",)) for i in range(80)]
    own = ReaderSetConfig(**config, use="train", leave_out=["q0"], spare=5, validated=7)
    opened: Any = SimpleNamespace(passages=passages, questions=questions)
    parts = ReaderSet("toy", own, opened, None, (), None).divide(FoldConfig(report=None, validation=0.0), None)  # type: ignore[arg-type]
    articles = [{int(id_[1:]) // 2 for id_ in ids} for ids in (parts.train, parts.validation, parts.report)]
    assert sum(map(len, articles)) == len(set.union(*articles)), "no article is in two parts"
    assert len(parts.validation) == 7 and "q0" not in (*parts.train, *parts.report)
    assert len(articles[2]) == 10 if "held_out" in config else 10 < len(articles[2]) < 30
