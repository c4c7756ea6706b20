"""The span reader's network: windows, candidates in them, what is computed from both, checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnrag.errors import ArtefactError
from gnnrag.roles.tuned.checkpoint import load_trained, read_tuned, round_weights
from gnnrag.roles.tuned.span_items import FEATURES, SpanItem, kind_of, padded, places_of, token_range
from gnnrag.roles.tuned.span_network import SpanReader, group_scores, likely_spans, read_alone, window_maker
from gnnrag.training.reader import rank_loss, span_loss
from gnnrag.training.reader_data import ReaderQuestion, make_example
from gnnrag.types import Passage
from tests.helpers.tuned import base_of
from tests.helpers.tuned_reader import PASSAGES, QUESTIONS, item_maker, make_reader, make_span, network_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("span")


def shown(*ids: str) -> list[Passage]:
    return [p for i in ids for p in PASSAGES if p.id == i]


def test_a_window_knows_which_characters_its_tokens_cover(folder: Path) -> None:
    maker = window_maker(network_config(folder, question_tokens=8, bridge_tokens=6, text_tokens=16))
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


def test_titles_are_candidates_and_a_passage_is_read_with_what_leads_to_it(folder: Path) -> None:
    maker = item_maker(network_config(folder))
    item = maker.make(QUESTIONS[0].text, shown("a", "b"))
    assert item.answers == ("Ada Lovelace", "Lord Byron") and (item.places == -1).all()
    assert item.features.shape == (2, len(FEATURES)) and item.features[:, FEATURES.index("kind_title")].all()
    named = item.features[:, FEATURES.index("same_as_named")]
    assert named.tolist() == [1.0, 0.0]  # the question names Ada Lovelace, whose passage names Lord Byron
    assert item.features[:, FEATURES.index("same_as_linked")].tolist() == [0.0, 1.0]
    bridge = maker.windows.tokenizer.decode(item.windows[1].ids)
    assert "father" in bridge.split("[SEP]")[1].replace(" ", "")


def test_likely_spans_become_candidates(folder: Path) -> None:
    chances = torch.full((2, 30, 2), -9.0)
    chances[0, 2, 0], chances[0, 4, 1], chances[1, 3, 0], chances[1, 1, 1] = -1.0, -1.0, -0.5, -0.1
    chances[0, 29, 1] = -0.2  # 28 tokens are too many, and an end before its beginning is none
    assert likely_spans(chances, 2)[0] == (0, 2, 4) and (1, 3, 1) not in likely_spans(chances, 4000)
    assert all(0 <= last - first < 24 for _, first, last in likely_spans(chances, 4000))
    item = item_maker(network_config(folder)).make(QUESTIONS[0].text, shown("a", "b"))
    london, born, father = (place(item, 0, words) for words in ("London", "born in London", "father was"))
    byron, stop = place(item, 0, "Lord Byron"), place(item, 0, ".")
    read = item.with_spans([london, stop, born, london, byron, father], 3)  # the stop says nothing, London is there
    assert [one.text for one in read.candidates] == [
        "London",
        "born in London",
        "Lord Byron",
        "Ada Lovelace",
        "Lord Byron",
    ]
    assert read.answers == ("London", "born in London", "Lord Byron", "Ada Lovelace")
    assert read.groups.tolist() == [0, 1, 2, 3, 2] and read.places[:3].tolist() == [
        list(p) for p in (london, born, byron)
    ]
    assert read.features.shape == (5, len(FEATURES))
    assert read.features[2, FEATURES.index("occurrences")] == pytest.approx(2 / 8)
    window, first, last = london
    assert "london" in item_maker(network_config(folder)).windows.tokenizer.decode(
        item.windows[window].ids[first : last + 1]
    ).replace(" ", "")


@pytest.mark.parametrize(
    "text, kind",
    [("4 May 1890", "date"), ("1904", "year"), ("34,416", "number"), ("twelve boats", "number"), ("Lord Byron", "name"),
     ("a copper statue", "words")],
)  # fmt: skip
def test_spans_have_kinds(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_chances_are_those_of_an_item_alone(folder: Path) -> None:
    config = network_config(folder)
    maker, model = item_maker(config), make_reader(config)
    items = [maker.make(q.text, shown(*q.retrieved)) for q in QUESTIONS]
    together = read_alone(model, items)
    scores, groups = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 0])
    expected = torch.tensor([np.log(np.exp(1) + np.exp(3)), 2.0], dtype=torch.float32)
    assert torch.allclose(group_scores(scores, groups, 2), expected, atol=1e-6)
    for item, (read, chances) in zip(items, together, strict=True):
        assert np.array_equal(read_alone(model, [item])[0][1], chances) and len(read.item.answers) > len(item.answers)
        assert chances.sum() == pytest.approx(1, abs=1e-5) and len(chances) == len(read.item.answers)
    again = read_alone(model, items[::-1])[::-1]
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(together, again, strict=True))
    ((read, chances),) = read_alone(model, [maker.make("Who?", [])])
    assert read.tokens is None and len(chances) == 0


@pytest.mark.slow
def test_a_handful_of_questions_is_learned_by_heart(folder: Path) -> None:
    config = network_config(folder)
    maker, model = item_maker(config), make_reader(config)
    examples = [make_example(q, shown(*q.gold), maker) for q in QUESTIONS[:3]]
    optimizer = torch.optim.AdamW([{**g, "lr": 0.01 * g.pop("scale", 1)} for g in model.parameter_groups()])
    losses = []
    for _ in range(60):
        logits = model([example.item for example in examples])
        loss = torch.stack([span_loss(e, own) for e, own in zip(examples, logits, strict=True)]).sum()
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.3 * losses[0]
    for example, (read, chances) in zip(examples, read_alone(model.eval(), [x.item for x in examples]), strict=True):
        assert example.right(read.item)[int(chances.argmax())] and chances.max() > 0.5


def test_the_span_loss_is_that_of_each_window_and_of_all_together(folder: Path) -> None:
    example = make_example(QUESTIONS[0], shown("a", "b"), item_maker(network_config(folder)))
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
        expected += (np.log1p(texts[0]) + np.log1p(texts[1]) - right) / 2 + np.log1p(sum(texts)) - right
    assert len(example.spans) == 1 and span_loss(example, logits).item() == pytest.approx(expected.item(), abs=1e-4)


def test_the_ranking_loss_is_of_all_that_is_right(folder: Path) -> None:
    model, maker = make_reader(network_config(folder)), item_maker(network_config(folder))
    asked = ReaderQuestion("Who was a poet?", ("Lord Byron",), ("b",), ("b",))  # a title is always a candidate
    example = make_example(asked, shown("a", "b"), maker)
    ((read, chances),) = read_alone(model, [example.item])
    right = example.right(read.item)
    assert right.any() and rank_loss(example, read).item() == pytest.approx(-np.log(chances[right].sum()), abs=1e-4)
    wrong = make_example(QUESTIONS[2], shown("a", "b"), maker)
    assert rank_loss(wrong, read_alone(model, [wrong.item])[0][0]).item() == 0


def test_a_fixed_encoder_is_not_trained_and_remembered(folder: Path) -> None:
    config = network_config(folder, fixed=True)
    maker, model = item_maker(config), make_reader(config)
    model.memory = {}
    trained = {id(p) for group in model.parameter_groups() for p in group["params"]}
    assert trained == {id(p) for n, p in model.named_parameters() if not n.startswith(("encoder.", "span."))}
    item = maker.make(QUESTIONS[0].text, shown("a", "b"))
    ((_, before),) = read_alone(model, [item])
    assert set(model.memory) == {w.ids for w in item.windows}
    model.span.weight.data.zero_()  # what is remembered is not read again
    assert np.array_equal(read_alone(model, [item])[0][1], before)


def test_a_checkpoint_gives_the_same_answers(folder: Path) -> None:
    path = make_span(folder)
    record = read_tuned(path, "reader", ["span"])
    model = load_trained(path, record, SpanReader, base_of(path))
    config = network_config(folder)
    item = item_maker(config).make(QUESTIONS[0].text, shown("a", "b"))
    fresh = make_reader(config)
    round_weights(fresh)
    assert np.array_equal(read_alone(model, [item])[0][1], read_alone(fresh, [item])[0][1])
    assert not any("embeddings" in name for name in _names(path))  # only what was trained is stored
    written = json.loads((path / "gnnrag.json").read_text("utf-8"))
    assert written["role"] == "reader" and written["kind"] == "span" and written["base"]["name"] == config.base


def test_checkpoints_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    path = make_span(folder)
    record = read_tuned(path, "reader", ["span"])
    other = network_config(tmp_path, train_layers=2)
    with pytest.raises(ArtefactError, match="trained on the base"):
        load_trained(path, record, SpanReader, _changed(Path(other.base)))


def _names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path / "model.safetensors", "pt") as weights:
        return list(weights.keys())


def _changed(base: Path) -> str:
    config = json.loads((base / "config.json").read_text("utf-8"))
    (base / "config.json").write_text(json.dumps({**config, "note": "another"}))
    return str(base)
