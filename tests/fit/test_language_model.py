"""Prompts and replies as tokens, and what a model says of them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnrag.config import load_config
from gnnrag.errors import ArtefactError, ConfigError, DataError
from gnnrag.llm.base import Backend, Message
from gnnrag.parts import set_up
from gnnrag.roles.thoughts import PromptedThoughts, parse_thoughts
from gnnrag.roles.verifier import PromptedVerifier, parse_selection
from gnnrag.session import Session
from gnnrag.training.language.data import TrainLanguageConfig, asked, check_language, encoded, read_role, task_of
from gnnrag.training.language.losses import LanguageModel, open_language_model
from gnnrag.training.language.validation import selection_scores
from gnnrag.training.rows import Turn
from tests.helpers.language_rows import settings, thoughts_row, verifier_row, write_rows
from tests.helpers.tiny_model import make_tiny_model, make_tiny_seq2seq

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"), lively=True)


@pytest.fixture(scope="module")
def seq2seq(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_seq2seq(base, tmp_path_factory.mktemp("seq2seq"))


def opened(folder: Path, model: Path, *more: str, role: str = "thoughts") -> tuple[LanguageModel, list[Any]]:
    config = load_config(TrainLanguageConfig, None, settings(folder, role, model, *more))
    data = read_role(role, config.data.rows, config.data.prompt or "")
    found = open_language_model(config, role, CPU)
    return found, encoded(data.rows, data.prompt_name, found.encoder)


class Recorder(Backend):
    """A backend that keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Message, ...]] = []

    @property
    def identity(self) -> dict[str, Any]:
        return {}

    async def generate(self, request: Any) -> Any:
        self.asked.append(request.messages)
        raise ConfigError("stop here")


@pytest.mark.parametrize(
    "row, role, cls", [(thoughts_row(1), "thoughts", PromptedThoughts), (verifier_row(1), "verifier", PromptedVerifier)]
)
def test_training_shows_what_the_role_asks(row: Any, role: str, cls: Callable[..., Any]) -> None:
    backend = Recorder()
    with pytest.raises(ConfigError, match="stop here"):
        asyncio.run(set_up(cls(), backend=backend, index=None, roles={})(task_of(row), Session("q")))
    assert backend.asked == [asked(row)]


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_a_batch_says_what_each_row_says_alone(kind: str, base: Path, seq2seq: Path, tmp_path: Path) -> None:
    model, examples = opened(tmp_path, base if kind == "causal" else seq2seq, f"kind={kind}")
    rows = [(e.prompt, e.reply) for e in examples[:5]]
    assert len({len(p) for p, _ in rows}) > 1 and len({len(r) for _, r in rows}) > 1
    with torch.inference_mode():
        together, numbers = model.log_probabilities(model.network, rows, CPU)
        alone = [float(model.log_probabilities(model.network, [row], CPU)[0]) for row in rows]
    assert together.tolist() == pytest.approx(alone, rel=1e-4)
    assert numbers.tolist() == [len(reply) for _, reply in rows]


def test_only_the_replys_tokens_count(base: Path, tmp_path: Path) -> None:
    model, examples = opened(tmp_path, base)
    prompt, reply = examples[0].prompt, examples[0].reply
    network: Any = model.network
    with torch.inference_mode():
        found, _ = model.log_probabilities(network, [(prompt, reply)], CPU)
        logits = network(input_ids=torch.tensor([[*prompt, *reply]])).logits[0].log_softmax(-1)
    by_hand = sum(float(logits[len(prompt) + i - 1, token]) for i, token in enumerate(reply))
    assert float(found) == pytest.approx(by_hand, rel=1e-5)
    assert reply[-1] == model.tokenizer.eos_token_id and reply[-1] not in reply[:-1]


def test_a_reply_is_parsed_into_what_the_teacher_said() -> None:
    row, choice = thoughts_row(3), verifier_row(3)
    thoughts = parse_thoughts(row.messages[-1].content)
    assert (thoughts.fast, thoughts.slow) == (row.fast, row.slow)
    numbers = parse_selection(choice.messages[-1].content)
    assert tuple(choice.passages[n - 1].id for n in sorted(numbers)) == choice.selected


def test_what_is_too_long_is_dropped_and_counted(base: Path, tmp_path: Path) -> None:
    model, examples = opened(tmp_path, base)
    lengths = sorted(len(e.prompt) + len(e.reply) for e in examples)
    model.encoder.context = lengths[9]
    rows: list[Any] = [e.row for e in examples]
    reasons: list[str] = []
    prompt = str(tmp_path / "thoughts_short.yaml")
    kept = encoded(rows, prompt, model.encoder, reasons.append)
    assert all(len(e.prompt) + len(e.reply) <= lengths[9] for e in kept)
    assert reasons == ["too long"] * (len(rows) - len(kept)) and 10 <= len(kept) < len(rows)


def test_rows_asked_with_another_prompt_are_refused(tmp_path: Path) -> None:
    path = write_rows(tmp_path, "thoughts", 3)
    with pytest.raises(DataError, match="line 1: row 't0' does not show the prompt 'thoughts' of this version"):
        read_role("thoughts", [str(path)])
    row = thoughts_row(0)
    turns = [Turn(role=m.role, content=m.content) for m in asked(row)]
    path = write_rows(tmp_path, "thoughts", 1, messages=(*turns, row.messages[-1]))
    assert len(read_role("thoughts", [str(path)]).rows) == 1
    with pytest.raises(DataError, match="id 't0' stands in another of the files"):
        read_role("thoughts", [str(path), str(path)])


def test_the_adapter_alone_trains_and_starts_as_nothing(base: Path, tmp_path: Path) -> None:
    model, examples = opened(tmp_path, base)
    network: Any = model.network
    names = [name for name, p in network.named_parameters() if p.requires_grad]
    assert names and all("lora_" in name for name in names)
    assert any("down_proj" in name for name in names) and not any("lm_head" in name for name in names)
    rows = [(e.prompt, e.reply) for e in examples[:2]]
    with torch.inference_mode():
        adapted, _ = model.log_probabilities(network, rows, CPU)
        with network.disable_adapter():
            bare, _ = model.log_probabilities(network, rows, CPU)
    assert torch.equal(adapted, bare), "B starts at zero"


def test_checkpointing_changes_no_gradient(base: Path, tmp_path: Path) -> None:
    gradients = []
    for more in ((), ("model.checkpointing=true",)):
        model, examples = opened(tmp_path, base, *more)
        model.network.train()
        total, _ = model.log_probabilities(model.network, [(e.prompt, e.reply) for e in examples[:2]], CPU)
        total.sum().backward()
        gradients.append({n: p.grad for n, p in model.network.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and gradients[0]
    for name, value in gradients[0].items():
        torch.testing.assert_close(value, gradients[1][name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "more, error, message",
    [
        ("kind=seq2seq", ConfigError, "is a causal model; set kind=causal"),
        ("lora.targets=[nothing]", ConfigError, r"lora.targets=\['nothing'\]"),
        ("start=/nowhere", ArtefactError, "roles.thoughts.path must name a folder that a training of thoughts wrote"),
        ("model.base=/nowhere", ConfigError, "model folder '/nowhere' does not exist"),
    ],
)
def test_what_cannot_be_opened_is_named(
    more: str, error: type[Exception], message: str, base: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        opened(tmp_path, base, more)


@pytest.mark.parametrize(
    "more, message",
    [
        ("stage=rlhf", "stage='rlhf': must be 'sft', 'dpo' or 'grpo'"),
        ("lora.rank=0", "lora.rank=0: must be greater than or equal to 1"),
        ("data.rows=[]", "data.rows: name at least one file"),
        ("model.base=''", "model.base: name the folder"),
        ("cross=true data.divide=rows", "cross=true needs data.divide=folds"),
    ],
)
def test_bad_settings_are_named(more: str, message: str, tmp_path: Path) -> None:
    dots = settings(tmp_path, "thoughts", tmp_path, *more.split())
    with pytest.raises(ConfigError, match=message):
        check_language(load_config(TrainLanguageConfig, None, dots), "thoughts")


def test_only_thoughts_have_preferences(tmp_path: Path) -> None:
    config = load_config(TrainLanguageConfig, None, settings(tmp_path, "verifier", tmp_path, "stage=dpo"))
    with pytest.raises(ConfigError, match="only thoughts have queries to rate"):
        check_language(config, "verifier")


def test_a_model_that_would_never_stop_is_refused(base: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(base, tmp_path / "odd")
    (folder / "generation_config.json").write_text('{"eos_token_id": 5}')
    with pytest.raises(ConfigError, match="would never stop"):
        opened(tmp_path, folder)


def test_selections_are_scored() -> None:
    assert selection_scores({"a", "b"}, {"b", "c", "d"}) == pytest.approx((0.5, 1 / 3, 0.4))
    assert selection_scores(set(), set()) == (1.0, 1.0, 1.0)
    assert selection_scores({"a"}, set()) == selection_scores(set(), {"a"}) == selection_scores({"a"}, {"b"})
    assert selection_scores({"a"}, {"b"}) == (0.0, 0.0, 0.0)
