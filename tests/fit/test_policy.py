"""Group relative policy optimisation: its formulas, what is drawn, and that rewarded replies become likelier."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from gnnrag.config import load_config
from gnnrag.errors import ConfigError
from gnnrag.llm.base import Reply
from gnnrag.training.base import RunContext, train
from gnnrag.training.language.data import PolicyConfig, TrainLanguageConfig, check_language, read_role
from gnnrag.training.language.policy import Draw, advantages, drawn, policy_losses, reward, rewarded
from gnnrag.training.language.train import ThoughtsCausalTraining
from gnnrag.training.language.validation import TrainingBackend
from tests.helpers.language_rows import settings, thoughts_row
from tests.helpers.tiny_model import make_tiny_model

CPU = torch.device("cpu")
GROUP = [Draw((1,), (2, 3), 1.0), Draw((1,), (4, 5, 6, 7), -1.0)]


class Scored:
    """A model that says -2 of a reply of two tokens and -8 of one of four; without its adapter one less each."""

    inside = False

    def log_probabilities(self, network: Any, rows: Any, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = torch.tensor([float(len(reply)) for _, reply in rows])
        return -lengths * (lengths / 2) - float(self.inside), lengths

    def disable_adapter(self) -> Scored:
        return self

    def __enter__(self) -> None:
        self.inside = True

    def __exit__(self, *error: object) -> None:
        self.inside = False


class Letters:
    """Stands for a retriever: a query is worth the share of its letters that are vowels."""

    inputs: dict[str, str] = {}  # noqa: RUF012

    def __call__(self, row: Any, queries: Any) -> dict[str, float]:
        text = "".join(queries).casefold()
        return {"found": sum(letter in "aeiou" for letter in text) / max(1, len(text)), "gain": 7.0}


def test_advantages_are_those_of_the_paper() -> None:
    assert advantages([1.0, 0.0, 0.0, 1.0]) == [1.0, -1.0, -1.0, 1.0]
    assert advantages([0.4] * 3) == [0.0] * 3


def test_the_loss_is_that_of_its_formula() -> None:
    model: Any = Scored()
    (plain,) = policy_losses(model, nn.Identity(), [GROUP], PolicyConfig(), CPU).tolist()
    assert plain == pytest.approx((1.0 * 1 + -1.0 * 2) / 2)  # mean negative log-probability of a token: 1 and 2
    (held,) = policy_losses(model, model, [GROUP], PolicyConfig(beta=0.5), CPU).tolist()
    far = [math.exp(d) - d - 1 for d in (-1 / 2, -1 / 4)]
    assert held == pytest.approx(plain + 0.5 * sum(far) / 2)


@pytest.mark.parametrize(
    "reply, worth",
    [
        (Reply("Fast Thought: aeb\nSlow Thought: ebb"), 0.5),
        (Reply("Fast Thought: aeb\nSlow Thought: ebb", "length"), -0.1),
        (Reply("So the answer is Ada\nWho?"), -0.1),
        (Reply("{}"), -0.1),
    ],
)
def test_a_reply_is_worth_what_it_finds(reply: Reply, worth: float) -> None:
    assert reward(thoughts_row(0), reply, Letters(), PolicyConfig()) == pytest.approx(worth)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"), lively=True)


def opened(folder: Path, base: Path, *more: str) -> ThoughtsCausalTraining:
    dots = settings(
        folder, "thoughts", base, "stage=grpo", "corpora.toy.data.path=x", "judging.rows=0", "folds.report=null", *more
    )
    config = load_config(TrainLanguageConfig, None, dots)
    rows = read_role("thoughts", config.data.rows, config.data.prompt or "")
    return ThoughtsCausalTraining(config, (rows, {"toy": Letters()}), 0, RunContext(Accelerator(cpu=True)))


def test_what_is_drawn_depends_on_row_and_place_alone(base: Path, tmp_path: Path) -> None:
    training = opened(tmp_path, base, "judging.tokens=8")
    training.build()
    items, config = training.batch(0)[:3], PolicyConfig(group=3)
    backend = TrainingBackend(training.model, training.config.judging)

    def draws(which: Any, *place: int) -> list[list[Draw]]:
        return drawn(which, training.rows.prompt_name, backend, training.corpora, config, place)

    together = draws(items, 0, 1)
    assert [len(group) for group in together] == [3, 3, 3]
    assert together[1] == draws(items[1:2], 0, 1)[0] != draws(items[1:2], 0, 2)[0]
    heard: list[Reply] = []
    answer, backend.answer = backend.answer, lambda requests: heard.extend(answer(requests)) or heard  # type: ignore[func-returns-value, method-assign, misc]
    rows = draws(items[:1], 0, 3)[0]
    assert [draw.reply for draw in rows] == [reply.tokens for reply in heard]  # as drawn: text is tokenised otherwise
    assert any(training.model.encoder.reply(reply.text) != reply.tokens for reply in heard)
    assert len({draw.reply for draw in together[0]}) > 1
    assert all(abs(math.fsum(draw.advantage for draw in group)) < 1e-9 for group in together)


def test_rows_without_a_reward_are_left_out(base: Path, tmp_path: Path) -> None:
    training = opened(tmp_path, base)
    training.build()
    encoder, counts = training.model.encoder, Counter[str]()

    class Whole(Letters):
        def __call__(self, row: Any, queries: Any) -> dict[str, float]:
            return {"gain": 0.0}

    rows = [thoughts_row(0), thoughts_row(1, set="other"), thoughts_row(2, set="whole")]
    corpora: Any = {"toy": Letters(), "whole": Whole()}
    prompt = training.rows.prompt_name
    found = rewarded(rows, prompt, encoder, corpora, 6, lambda reason: counts.update([reason]))
    assert [item.row.id for item in found] == ["t0"] and found[0].reply == ()
    assert counts == {"of a set that corpora does not name": 1, "with nothing left to find": 1}
    assert rewarded(rows[:1], prompt, encoder, corpora, 10**6, lambda reason: counts.update([reason])) == []
    assert counts["too long"] == 1


def worth(training: ThoughtsCausalTraining) -> float:
    """Return the mean reward of what the model draws to all prompts of its training."""
    backend, corpus = TrainingBackend(training.model, training.config.judging), Letters()
    items = [item for items in training.items.values() for item in items]
    groups = drawn(items, training.rows.prompt_name, backend, training.corpora, PolicyConfig(), [99])
    texts = [training.model.tokenizer.decode(draw.reply, skip_special_tokens=True) for g in groups for draw in g]
    return sum(corpus(None, [text])["found"] for text in texts) / len(texts)


@pytest.mark.slow
def test_rewarded_replies_become_likelier_and_a_stopped_run_ends_alike(base: Path, tmp_path: Path) -> None:
    more = ["judging.tokens=12", "fit.steps=32", "fit.lr=0.01", "seed=2"]
    fresh = opened(tmp_path, base, *more)
    fresh.build()
    ends = []
    for name, parts in (("whole", [None]), ("cut", [7, None])):  # steps that each part of a run does
        for steps in parts:
            training, done = opened(tmp_path, base, *more), iter(range(100))
            stop = lambda steps=steps, done=done: next(done) == steps  # noqa: E731
            training.context = RunContext(Accelerator(cpu=True), stop=stop)
            train(tmp_path / name, training)
        ends.append({n: v for n, v in training.model.network.named_parameters() if "lora_" in n})
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    assert worth(training) > worth(fresh) + 0.1


@pytest.mark.parametrize(
    "more, message",
    [
        (["corpora={}"], "name the rows' sets in corpora"),
        (["policy.group=1"], r"policy\.group=1"),
        (["policy.beta=-1"], r"policy\.beta=-1"),
        (["policy.beta=0.1", "start=somewhere"], r"policy\.beta=0\.1"),
    ],
)
def test_bad_settings_are_refused(more: list[str], message: str) -> None:
    own = [] if more == ["corpora={}"] else ["corpora.toy.data.path=z"]
    dots = ["stage=grpo", "model.base=x", "data.rows=[y]", *own, *more]
    with pytest.raises(ConfigError, match=message):
        check_language(load_config(TrainLanguageConfig, None, dots), "thoughts")
