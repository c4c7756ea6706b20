"""Rows of a tuned role as tokens: what the model is shown, as at inference, and what it is to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnrag.common.files import file_digest
from gnnrag.errors import ConfigError, DataError
from gnnrag.fit.folds import Parts, draw, split_questions
from gnnrag.fit.language_config import ModelConfig, TrainLanguageConfig
from gnnrag.llm.base import Message
from gnnrag.llm.chat import encode, own_context
from gnnrag.prompts.load import Prompt, load_prompt
from gnnrag.roles.base import Chain, Thoughts, ThoughtsTask, VerifierTask
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.roles.verifier import verifier_chat
from gnnrag.tuned.rows import ThoughtsRow, Turn, VerifierRow, read_rows
from gnnrag.types import Passage, Question

ROWS: dict[str, Any] = {"verifier": VerifierRow, "thoughts": ThoughtsRow}
PARTS = ("train", "validation", "report")
AnyRow = VerifierRow | ThoughtsRow


@dataclass(frozen=True)
class Example:
    """A row as tokens.

    Attributes:
        row: where it comes from.
        prompt: tokens of the prompt.
        reply: tokens that the model is to give, the end among them.
    """

    row: AnyRow
    prompt: tuple[int, ...]
    reply: tuple[int, ...]


@dataclass
class RoleRows:
    """The rows of a role.

    Attributes:
        role: `verifier` or `thoughts`.
        prompt: of the role at inference.
        prompt_name: name or path of a prompt that is not the role's own, else an empty text.
        rows: all of them, in the order of the files.
        dropped: how many rows were left out, by reason.
        digests: of the files, by name.
    """

    role: str
    prompt: Prompt
    prompt_name: str
    rows: list[AnyRow]
    dropped: Counter[str] = field(default_factory=Counter)
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """How the prompted role is to ask: a verifier is shown no more passages at once than in its training."""
        longest = max((len(shown(row)) for row in self.rows), default=0)
        return {"window": longest} if self.role == "verifier" else {}

    def split(self, config: TrainLanguageConfig, fold: int | None) -> dict[str, Parts]:
        """Return which questions of each set train, validate and report."""
        found = {}
        for name in sorted({row.set for row in self.rows}):
            rows = [row for row in self.rows if row.set == name]
            ids = {row.question_id: row.question for row in rows}
            if config.data.divide == "folds":
                found[name] = split_questions(ids, replace(config.folds, report=fold), ids)
            else:
                parts = [_of_part(rows, part) for part in PARTS]
                if both := [id_ for id_ in ids if sum(id_ in part for part in parts) > 1]:
                    raise ConfigError(f"question {both[0]!r} of {name} has rows in two parts; give data.divide=folds")
                found[name] = Parts(*(tuple(part) for part in parts))
        return found

    def of(self, parts: Mapping[str, Parts], part: str) -> list[AnyRow]:
        """Return the rows of a part, in their order."""
        ids = {name: set(getattr(one, part)) for name, one in parts.items()}
        return [row for row in self.rows if row.question_id in ids[row.set]]


def read_role(role: str, paths: Sequence[str], prompt_name: str = "") -> RoleRows:
    """Read the rows of a role, and check that they were asked as the role asks now.

    Args:
        role: `verifier` or `thoughts`.
        paths: of the files.
        prompt_name: of another prompt, which then takes the place of the one that the teacher was asked with.

    Raises:
        DataError: no such file, a line that is no row, a row that two files have, or one that shows another prompt.
    """
    prompt = load_prompt(prompt_name or role)
    rows: dict[str, AnyRow] = {}
    digests = {}
    for path in map(Path, paths):
        for number, row in enumerate(read_rows(path, ROWS[role]), start=1):
            if row.id in rows:
                raise DataError(path, f"id {row.id!r} stands in another of the files, too", number)
            if row.messages and not prompt_name and _turns(row.messages[:-1]) != asked(row):
                problem = f"row {row.id!r} does not show the prompt {prompt.name!r} of this version"
                fix = f"collect the traces again, or set data.prompt={role} to have this version's instead"
                raise DataError(path, f"{problem}; {fix}", number)
            rows[row.id] = row
        digests[path.name] = file_digest(path)
    return RoleRows(role, prompt, prompt_name, list(rows.values()), Counter(), digests)


def task_of(row: AnyRow) -> VerifierTask | ThoughtsTask:
    """Return the task of a row's decision, with the passages that its chat shows."""
    question, passages = Question(row.question_id, row.question), shown(row)
    if isinstance(row, VerifierRow):
        return VerifierTask(question, Chain(row.chain, support=row.support), passages)
    with_chain, may_stop = row.source.get("chain") is not None, bool(row.source.get("may_stop"))
    return ThoughtsTask(question, passages, (), row.earlier, row.round, with_chain, may_stop)


def asked(row: AnyRow, prompt: str = "") -> tuple[Message, ...]:
    """Return the conversation that the role has about a row's decision, up to where the model speaks.

    `prompt` names another prompt than the role's own.
    """
    task = task_of(row)
    if isinstance(task, VerifierTask):
        return verifier_chat(task, (), prompt)[:-1]
    return thoughts_chat(task, Thoughts(), prompt)[:-1]


def shown(row: AnyRow) -> tuple[Passage, ...]:
    """Return the passages that the role's chat shows: a verifier's row holds more, and mined ones behind them."""
    passages = {passage.id: passage.passage for passage in row.passages}
    chat = row.source.get("chat") or list(passages)[: row.source.get("seen", len(passages))]
    return tuple(passages[id_] for id_ in chat)


class Encoder:
    """Turns conversations into tokens, with the model's own limits.

    Args:
        tokenizer: of transformers.
        config: of the model.
        is_seq2seq: whether it has an encoder.
        settings: the model's own configuration, which knows its context.
        ends: tokens that end a reply at inference.

    Raises:
        ConfigError: the tokenizer's end of a turn would not end a reply.
    """

    def __init__(
        self, tokenizer: Any, config: ModelConfig, is_seq2seq: bool, settings: Any, ends: Iterable[int]
    ) -> None:
        self.tokenizer, self.config, self.is_seq2seq = tokenizer, config, is_seq2seq
        self.context = config.context or own_context(settings, tokenizer, is_seq2seq)
        self.end = tokenizer.eos_token_id
        if self.end is None or self.end not in set(ends):
            raise ConfigError(
                f"the end token of {tokenizer.name_or_path!r} is {tokenizer.eos_token!r}, and replies end with others "
                "by its generation_config.json: a model trained so would never stop; mend eos_token_id there"
            )

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the tokens of a prompt, as inference makes them."""
        c = self.config
        return tuple(encode(self.tokenizer, messages, c.chat, c.template_options, is_seq2seq=self.is_seq2seq))

    def reply(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a reply and its end."""
        return (*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end)

    def fits(self, prompt: Sequence[int], *replies: Sequence[int]) -> bool:
        """Whether a prompt with its longest reply is within the context; a seq2seq model has room of its own for it."""
        longest = 0 if self.is_seq2seq else max(map(len, replies), default=0)
        return self.context is None or len(prompt) + longest <= self.context


def encoded(
    rows: Sequence[AnyRow], prompt: str, encoder: Encoder, note: Callable[[str], None] = lambda reason: None
) -> list[Example]:
    """Return the rows that hold a teacher's reply as tokens; `note` is told why one is left out.

    Args:
        rows: of a role.
        prompt: name of another prompt than the role's own, or an empty text.
        encoder: of the model.
        note: is told why a row is left out.

    Raises:
        DataError: a row is too long, and such rows are not to be dropped.
    """
    found = []
    for row in rows:
        if not row.messages:
            note("without a reply")
            continue
        tokens = encoder.prompt(asked(row, prompt))
        reply = encoder.reply(row.messages[-1].content)
        if encoder.fits(tokens, reply):
            found.append(Example(row, tokens, reply))
            continue
        if encoder.config.too_long == "refuse":
            length = f"{len(tokens)} and {len(reply)} tokens do not fit into {encoder.context}"
            raise DataError(row.id, f"prompt and reply of {length}; show fewer passages, or set model.too_long=drop")
        note("too long")
    return found


def limited(rows: Sequence[AnyRow], count: int | None) -> list[AnyRow]:
    """Return at most so many rows, those of the lowest hash, in their order."""
    if count is None or len(rows) <= count:
        return list(rows)
    kept = {row.id for row in sorted(rows, key=lambda row: draw(row.id, "judging"))[:count]}
    return [row for row in rows if row.id in kept]


def _turns(turns: Sequence[Turn]) -> tuple[Message, ...]:
    return tuple(Message(turn.role, turn.content) for turn in turns)  # type: ignore[arg-type]


def _of_part(rows: Sequence[AnyRow], part: str) -> dict[str, None]:
    return dict.fromkeys(row.question_id for row in rows if row.part == part)
