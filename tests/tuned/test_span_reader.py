"""The span reader's network: windows, candidates in them, what is computed from both, checkpoints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gnnrag.errors import ConfigError
from gnnrag.roles.tuned import span_items
from gnnrag.roles.tuned.checkpoint import load_trained, read_tuned, trained
from gnnrag.roles.tuned.span_items import (
    Candidate,
    SpanItem,
    WindowMaker,
    kind_of,
    likely_spans,
    padded,
    places_of,
    read_alone,
    read_item,
    token_range,
)
from gnnrag.roles.tuned.span_network import SpanReader, over_all, relative_logits
from gnnrag.training.reader import make_example, span_loss
from gnnrag.types import Passage
from tests.helpers.tuned import base_of
from tests.helpers.tuned_reader import PASSAGES, QUESTIONS, item_of, make_reader, make_span, network_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("span")


def shown(*ids: str) -> list[Passage]:
    return [p for i in ids for p in PASSAGES if p.id == i]


def test_a_tokenizer_without_marks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = SimpleNamespace(cls_token=None, bos_token=None, sep_token="</s>", eos_token=None, pad_token=None)
    monkeypatch.setattr(span_items, "load_tokenizer", lambda base: bare)
    with pytest.raises(ConfigError, match=r"network\.base"):
        WindowMaker(span_items.SpanReaderConfig("bare"))


def test_a_window_knows_which_characters_its_tokens_cover(folder: Path) -> None:
    maker = WindowMaker(network_config(folder, question_tokens=8, bridge_tokens=6, text_tokens=16))
    text = PASSAGES[1].text
    windows = maker.windows("Where did he die?", ["Lord Byron"], [text], ["Ada Lovelace: Her father was Lord Byron."])
    assert len(windows) > 1 and {w.passage for w in windows} == {0}  # the text is longer than one window
    covered = np.unique(np.concatenate([w.spans for w in windows]), axis=0)
    assert covered[0, 0] == 0 and covered[-1, 1] == len(text)
    start = text.index("Missolonghi")
    found = [(w, r) for w in windows if (r := token_range(w, start, start + 11)) is not None]
    window, (first, last) = found[0]
    assert window.spans[first - window.first][0] == start and window.spans[last - window.first][1] == start + 11
    assert token_range(window, 10_000, 10_001) is None
    tokens, mask = padded(windows[:1], maker.pad, rows=3)
    assert tokens.shape[0] == 3 and tokens.shape[1] % 16 == 0 and mask[1].sum() == 1


def place(item: SpanItem, passage: int, words: str) -> tuple[int, int, int]:
    """Return window, first and last token of words in a passage."""
    at = item.asked.reading.texts[passage].index(words)
    window, first, last = places_of(item.windows, [(passage, at, at + len(words))])[0].tolist()
    return window, first, last


def test_a_passage_is_read_with_the_sentence_that_leads_to_it(folder: Path) -> None:
    config = network_config(folder)
    (_, window) = item_of(config, QUESTIONS[0].text, shown("a", "b")).windows
    bridge = WindowMaker(config).tokenizer.decode(window.ids, skip_special_tokens=False)
    assert "father" in bridge.split("[SEP]")[1].replace(" ", "")


def test_likely_spans_are_candidates(folder: Path) -> None:
    chances = torch.full((2, 30, 2), -16.0)
    chances[0, 2, 0], chances[0, 4, 1], chances[1, 3, 0], chances[1, 1, 1] = -1.0, -1.0, -0.5, -0.1
    chances[0, 29, 1] = -0.2  # 28 tokens are too many, and an end before its beginning is none
    every = likely_spans(chances.numpy(), 4000)
    assert likely_spans(chances.numpy(), 2) == every[:2] and every[0] == (0, 2, 4) and (1, 3, 1) not in every
    assert all(0 <= last - first < 24 for _, first, last in every)
    item = item_of(network_config(folder), QUESTIONS[0].text, shown("a", "b"))
    assert item.candidate(place(item, 0, "born in London")) == Candidate("born in London", 0, 17, 31)
    assert item.candidate(place(item, 0, ".")) is None, "it says nothing"


def test_answers_are_the_likeliest_spans_and_windows_compete(folder: Path) -> None:
    item = item_of(network_config(folder), QUESTIONS[0].text, shown("a", "b"))
    logits = torch.full((len(item.windows), max(len(w.ids) for w in item.windows), 2), -4.0)
    logits[:, 0] = 0.0
    for passage, words, value in ((0, "Lord Byron", 5.0), (1, "Lord Byron", 4.0), (0, "London", 4.5)):
        window, first, last = place(item, passage, words)
        logits[window, first, 0], logits[window, last, 1] = value, value
    found = read_item(item, list(logits.numpy()), 4)
    between = "London. Her father was Lord Byron"  # it begins as one of them and ends as another
    assert [f.candidate.text for f in found] == ["Lord Byron", between, "London"] and found[0].candidate.passage == 0
    relative = relative_logits(item, logits)
    total = (relative[:, 1:].exp().sum((0, 1)) + 1).log()  # of all text, and of no answer
    torch.testing.assert_close(over_all(relative), total)
    assert found[0].span == pytest.approx(10 - total.sum().item(), abs=1e-4) and found[0].odds == pytest.approx(10)
    both = np.exp(10) + np.exp(8)  # a name in two passages is one answer
    assert found[0].chance == pytest.approx(both / (both + np.exp(9.5) + np.exp(9)), abs=1e-4)
    assert found[0].begin == pytest.approx(np.exp(5 - total[0].item()), abs=1e-4)
    assert found[0].begin + found[2].begin < found[0].window_begin < 1
    assert found[0].window_end == found[1].window_end and sum(f.chance for f in found) == pytest.approx(1)


@pytest.mark.parametrize(
    "text, kind",
    [("4 May 1890", "date"), ("1904", "year"), ("34,416", "number"), ("twelve boats", "number"), ("Lord Byron", "name"),
     ("a copper statue", "words")],
)  # fmt: skip
def test_spans_have_kinds(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_what_is_found_is_that_of_an_item_alone(folder: Path) -> None:
    config = network_config(folder)
    model = make_reader(config)
    items = [item_of(config, q.text, shown(*q.retrieved)) for q in QUESTIONS]
    together = read_alone(model, items)
    assert [read_alone(model, [item])[0] for item in items] == together == read_alone(model, items[::-1])[::-1]
    for found in together:
        assert len(found) > 1 and sum(f.chance for f in found) == pytest.approx(1, abs=1e-5)
        assert [f.chance for f in found] == sorted((f.chance for f in found), reverse=True)
    assert read_alone(model, [item_of(config, "Who?", [])]) == [[]]


def test_the_span_loss_is_that_of_each_window_and_of_all_together(folder: Path) -> None:
    example = make_example(QUESTIONS[0], shown("a", "b"), WindowMaker(network_config(folder)))
    windows = example.item.windows
    assert {*example.spans[:, 0].tolist()} == {1}
    torch.manual_seed(0)
    logits = torch.randn(2, max(len(w.ids) for w in windows), 2)
    logits -= logits[:, :1].clone()
    expected = 0.0
    for side in (0, 1):
        texts = [logits[i, w.first : w.first + len(w.spans), side].exp().sum() for i, w in enumerate(windows)]
        right = logits[1, example.spans[0, 1 + side], side]
        # P(no answer in window 0), P(the place | window 1), P(the place | both windows)
        alone = texts[0].log1p() + texts[1].log1p() - right
        expected += float(alone / 2 + (texts[0] + texts[1]).log1p() - right)
    assert len(example.spans) == 1 and span_loss(example, logits).item() == pytest.approx(expected, abs=1e-4)


def test_a_checkpoint_gives_the_same_answers(folder: Path) -> None:
    path = make_span(folder)
    record = read_tuned(path, "reader", ["span"])
    model = load_trained(path, record, SpanReader, base_of(path))
    config = network_config(folder)
    item = item_of(config, QUESTIONS[0].text, shown("a", "b"))
    fresh = make_reader(config)
    with torch.no_grad():
        for weight in trained(fresh).values():  # as it is saved
            weight.copy_(weight.half())
    assert read_alone(model, [item]) == read_alone(fresh, [item])
