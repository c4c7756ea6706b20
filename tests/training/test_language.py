"""What language models are trained on: prompts and masks as tokens, pairs of replies, rewards, settings."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments

from gnnrag.config import load_config, read_yaml
from gnnrag.errors import ConfigError, DataError
from gnnrag.llm.base import Backend, Message
from gnnrag.llm.local import encode
from gnnrag.parts import from_settings, set_up
from gnnrag.roles.base import Verdict
from gnnrag.roles.thoughts import PromptedThoughts, parse_thoughts
from gnnrag.roles.verifier import PromptedVerifier, parse_selection
from gnnrag.session import Session
from gnnrag.training import TRAININGS
from gnnrag.training.base import arguments, chosen_training
from gnnrag.training.language import TRAINERS, LanguageTraining
from gnnrag.training.language_rows import (
    Examples,
    TrainLanguageConfig,
    asked,
    check_language,
    reply_of,
    reply_pairs,
    reward,
    task_of,
    verdict_scores,
)
from gnnrag.training.networks import DEFAULTS
from gnnrag.training.rows import ThoughtsRow
from gnnrag.training.sets import RowsConfig, read_set
from tests.helpers.language_rows import (
    Letters,
    rival_row,
    settings,
    thoughts_row,
    thoughts_training,
    verifier_row,
    write_prompt,
    write_rows,
)
from tests.helpers.tiny_model import make_tiny_model

CONFIG = TrainLanguageConfig()
ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "configs" / "train").glob("*.yaml"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"), lively=True)


def opened(folder: Path, model: Path, *more: str) -> Examples:
    config = load_config(TrainLanguageConfig, None, settings(folder, "thoughts", model, *more))
    network = AutoModelForCausalLM.from_pretrained(model)
    return Examples(network, AutoTokenizer.from_pretrained(model), config)


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


def test_a_reply_is_parsed_into_what_the_teacher_said() -> None:
    row, choice = thoughts_row(3), verifier_row(3)
    thoughts = parse_thoughts(reply_of(row))
    assert (thoughts.fast, thoughts.slow) == (row.fast, row.slow)
    numbers = parse_selection(reply_of(choice))
    assert tuple(choice.passages[n - 1].id for n in sorted(numbers)) == choice.selected


def trainer_of(folder: Path, model: Path, stage: str = "sft", *more: str) -> Any:
    dots = settings(folder, "thoughts", model, f"stage={stage}", "corpora.toy.data.path=x", "folds.report=null", *more)
    config = load_config(TrainLanguageConfig, None, dots)
    training = thoughts_training(config, 0)
    return training.trainer(folder / "checkpoints"), training.chats


def test_the_prompt_is_that_of_inference_and_only_the_reply_is_a_label(base: Path, tmp_path: Path) -> None:
    trainer, examples = trainer_of(tmp_path, base)
    by_reply = {reply_of(row): row for row in map(thoughts_row, range(24))}
    for example in trainer.train_dataset:
        labels = example["labels"]
        reply = [token for token in labels if token != -100]
        row = by_reply[examples.tokenizer.decode(reply, skip_special_tokens=True).strip()]
        prompt = encode(examples.tokenizer, asked(row, examples.prompt_name))
        assert example["input_ids"] == prompt + reply and labels == [-100] * len(prompt) + reply
        assert examples.tokenizer.eos_token_id in reply


def test_the_loss_of_a_batch_is_the_mean_over_the_tokens_of_its_replies(base: Path, tmp_path: Path) -> None:
    trainer, _ = trainer_of(tmp_path, base)
    examples = [trainer.train_dataset[n] for n in range(5)]
    assert len({len(e["input_ids"]) for e in examples}) > 1, "the batch is padded"
    model = AutoModelForCausalLM.from_pretrained(base)  # LoRA starts as nothing
    losses = []
    for e in examples:
        with torch.inference_mode():
            chances = model(input_ids=torch.tensor([e["input_ids"]])).logits[0].log_softmax(-1)
        losses += [-float(chances[at - 1, token]) for at, token in enumerate(e["labels"]) if token != -100]
    trainer.model.eval()
    with torch.inference_mode():
        loss = trainer.compute_loss(trainer.model, trainer.data_collator(examples))
    assert float(loss) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_what_is_too_long_is_dropped_and_counted(base: Path, tmp_path: Path) -> None:
    write_prompt("thoughts", tmp_path)
    examples, rows = opened(tmp_path, base), [thoughts_row(n) for n in range(24)]
    assert sum(len(examples.supervised(row)) for row in rows) == len(rows)
    prompt = encode(examples.tokenizer, asked(rows[0], examples.prompt_name))
    reply = examples.tokenizer(reply_of(rows[0]))["input_ids"]
    examples.context = len(prompt) + len(reply) + 1  # and its end
    assert examples.supervised(rows[0])
    examples.context -= 1
    assert not examples.supervised(rows[0]) and examples.dropped == {"too long": 1}


def test_a_row_stands_in_one_file(tmp_path: Path) -> None:
    path = str(write_rows(tmp_path, "thoughts", 1))
    assert len(read_set("toy", RowsConfig([path]), ThoughtsRow).examples) == 1
    with pytest.raises(DataError, match="two of the files have a row of the same id"):
        read_set("toy", RowsConfig([path, path]), ThoughtsRow)


def pairs_of(number: int, make: Any = thoughts_row, **more: Any) -> list[tuple[str, str]]:
    corpus: Any = Letters()
    texts = [str(text) for row in (thoughts_row(number), rival_row(number)) for text in (row.fast, row.slow)]
    ranked = {text: (text,) for text in texts}
    return reply_pairs(make(number), ranked, corpus, TrainLanguageConfig(**{"margin": 0.04, **more}))


def test_pairs_differ_in_one_thought_and_are_limited_by_margin_and_number() -> None:
    row, pairs = thoughts_row(0), pairs_of(0)
    assert len(pairs) > 2
    for chosen, rejected in pairs:
        one, other = chosen.splitlines(), rejected.splitlines()
        assert sum(a != b for a, b in zip(one, other, strict=True)) == 1
        assert "Aia ea ou?" in chosen, "the best query is preferred, whoever had it"
        assert rejected.count(str(row.fast)) < 2 and rejected.count(str(row.slow)) < 2, "the other thought is no rival"
    assert len(pairs_of(0, pairs=1)) == 2 and pairs_of(0, margin=0.9) == []


def test_both_replies_of_a_pair_follow_the_prompt_of_inference(base: Path, tmp_path: Path) -> None:
    trainer, examples = trainer_of(tmp_path, base, "dpo", "margin=0.04")
    prompt = trainer.train_dataset[0]["prompt_ids"]
    prompts = (encode(examples.tokenizer, asked(thoughts_row(n), examples.prompt_name)) for n in range(24))
    number = list(prompts).index(prompt)
    pairs = pairs_of(number) + pairs_of(number, rival_row)
    made = [example for example in trainer.train_dataset if example["prompt_ids"] == prompt]
    texts = [[examples.tokenizer.decode(e[f"{kind}_ids"]).strip() for kind in ("chosen", "rejected")] for e in made]
    assert texts == [[f"{reply}<|im_end|>" for reply in pair] for pair in pairs]


@pytest.mark.parametrize(
    "reply, is_whole, worth",
    [
        ("Fast Thought: aeb\nSlow Thought: ebb", True, 0.5),
        ("Fast Thought: aeb\nSlow Thought: ebb", False, -0.1),
        ("So the answer is Ada\nWho?", True, -0.1),
        ("{}", True, -0.1),
    ],
)
def test_a_reply_is_worth_what_it_finds(reply: str, is_whole: bool, worth: float) -> None:
    assert reward(thoughts_row(0), reply, is_whole, Letters()) == pytest.approx(worth)  # type: ignore[arg-type]


def test_rows_without_a_reward_are_left_out(base: Path, tmp_path: Path) -> None:
    trainer, examples = trainer_of(tmp_path, base, "grpo", "trainer.num_generations=2", "validation=0")
    rows = [thoughts_row(n) for n in range(4)]
    whole, unknown = (SimpleNamespace(scores=lambda *_, known=known: known) for known in ({"gain": 0.0}, {}))
    corpora = (Letters(), None, whole, unknown)
    found = [e for row, corpus in zip(rows, corpora, strict=True) for e in examples.drawn("toy", row, corpus)]
    assert [e["row"] for e in found] == [["toy", "t0"]]
    assert examples.compared(rows[0], []) == []
    unnamed = "of a set that corpora does not name"
    assert examples.dropped == {unnamed: 1, "with nothing to find": 2, "without a pair of replies": 1}
    prompt = encode(examples.tokenizer, asked(rows[0], examples.prompt_name))
    assert trainer._tokenize_prompts([found[0]["prompt"]])[0] == [prompt]


def test_a_model_that_would_never_stop_is_refused(base: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(base, tmp_path / "odd")
    (folder / "generation_config.json").write_text('{"eos_token_id": 5}')
    with pytest.raises(ConfigError, match="would never stop"):
        opened(tmp_path, folder)


@pytest.mark.parametrize(
    "gold, taught, selected, expected",
    [
        ("bcd", "", "ab", {"precision": 0.5, "recall": 1 / 3, "recall@5": 1.0}),
        ("", "a", "a", {"precision": 1.0, "recall": 1.0}),
        ("", "", "", {"selected": 0.0}),
    ],
)
def test_selections_are_scored(gold: str, taught: str, selected: str, expected: dict[str, float]) -> None:
    row = verifier_row(0)
    ids = {letter: passage.id for letter, passage in zip("abcd", row.passages, strict=False)}
    row = row.model_copy(update={"gold": tuple(ids[x] for x in gold), "selected": tuple(ids[x] for x in taught)})
    scores = verdict_scores(row, Verdict(tuple(ids[x] for x in selected)))
    assert scores.items() >= {name: pytest.approx(value) for name, value in expected.items()}.items()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_settings_of_a_config_are_those_of_its_trainer(path: Path) -> None:
    cls: Any = chosen_training(TRAININGS[f"train_{path.stem.partition('_')[0]}.py"], str(path), [])
    config = load_config(cls.schema, path)
    kind, own = TrainingArguments, {**DEFAULTS, "save_steps": config.trainer.get("eval_steps", 100)}
    if issubclass(cls, LanguageTraining):
        check_language(config, cls.role)
        assert from_settings(LoraConfig, config.lora).target_modules is None
        kind, own = TRAINERS[config.stage][1], {"save_strategy": "steps"}
    assert arguments(kind, Path("runs"), config, "loss", own).max_steps > 0


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_sweep_sets_what_its_trainer_has(path: Path) -> None:
    sweep = read_yaml(path, "")
    source, *fixed = sweep["command"][sweep["command"].index("${program}") + 1 : -1]
    chosen = [f"{name}={(space.get('values') or [space['max']])[-1]}" for name, space in sweep["parameters"].items()]
    cls: Any = chosen_training(TRAININGS[Path(sweep["program"]).name], str(ROOT / source), chosen)
    assert load_config(cls.schema, ROOT / source, [*fixed, *chosen]).run.root == f"runs/sweeps/{path.stem}"
