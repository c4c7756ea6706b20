"""Settings of a language model's training, and rows of its role as tokens: what it is shown and what it is to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from gnnrag.config import DataConfig, IndexConfig
from gnnrag.errors import ConfigError, DataError
from gnnrag.io import file_digest
from gnnrag.llm.base import Message
from gnnrag.llm.local import encode, own_context
from gnnrag.prompts import Prompt, load_prompt
from gnnrag.roles.base import Chain, ReaderTask, Thoughts, ThoughtsTask, VerifierTask
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.roles.tuned.causal_reader import PROMPT, brief_chat
from gnnrag.roles.verifier import verifier_chat
from gnnrag.training.config import CommonConfig, Count, FoldConfig, Parts, divide
from gnnrag.training.rows import ReaderRow, ThoughtsRow, VerifierRow, read_rows
from gnnrag.types import Passage, Question


@dataclass
class RowsConfig:
    """What is trained on."""

    rows: list[str] = field(default_factory=list)  # files of gnnrag collect-traces
    prompt: str | None = None  # name or .yaml of another prompt than the role's: a trained model needs no long one
    validation: Annotated[int, Ge(0)] | None = None  # most validation rows, drawn by the seed; null: all


@dataclass
class ModelConfig:
    """The model that is trained under an adapter (LoRA)."""

    base: str = ""  # folder or hub name (name@revision)
    # of the frozen weights; auto: bfloat16 on a GPU, else float32. What trains is float32
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    context: int | None = None  # most tokens of prompt and reply together; null: the model's own limit


@dataclass
class CorpusConfig:
    """Where the thoughts of a set are retrieved with, to measure what they bring."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    retriever: str = "dense"  # with its default settings
    licence: str = ""  # of the rows made from it, for the model card


@dataclass
class TrainLanguageConfig(CommonConfig):
    """Everything that training of a language model for a role reads."""

    kind: Literal["causal"] = "causal"
    # sft: on the teacher's replies; of thoughts also dpo: preferences, grpo: by what replies find (arXiv 2402.03300)
    stage: Literal["sft", "dpo", "grpo"] = "sft"
    start: str | None = None  # run or checkpoint to go on from, of the stage before
    data: RowsConfig = field(default_factory=RowsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    lora: dict[str, Any] = field(default_factory=dict)  # of peft.LoraConfig; default target_modules: all-linear
    # of the trainer of the stage, by its own names: trl.SFTConfig, DPOConfig, GRPOConfig
    trainer: dict[str, Any] = field(default_factory=dict)
    patience: Count | None = None  # evaluations without a better one after which training stops; null: never
    corpora: dict[str, CorpusConfig] = field(default_factory=dict)  # by set; thoughts: measures what they retrieve
    margin: Annotated[float, Gt(0)] = 0.1  # dpo: least difference of gains between the two replies of a pair
    pairs: Count = 4  # dpo: most of one row and one kind of thought, those of the largest difference first
    malformed: float = -0.1  # grpo: reward of a reply that is cut off, unreadable, or states an answer
    reply_tokens: Count = 160  # limit of a reply
    llm_settings: dict[str, Any] = field(default_factory=dict)  # of `hf` for the report: max_batch, batch_tokens, ...


def check_language(config: TrainLanguageConfig, role: str) -> None:
    """Raise ConfigError where there is nothing to train on, or settings contradict each other."""
    if not config.data.rows:
        made = "training/make_rows.py" if role == "reader" else "gnnrag collect-traces"
        raise ConfigError(f"data.rows: name at least one file {role}.jsonl of {made}")
    if not (config.model.base or config.start):
        raise ConfigError("model.base: name the folder of a model, or its name on the hub")
    if config.stage != "sft" and role != "thoughts":
        raise ConfigError(f"stage={config.stage}: only thoughts have queries to rate, not {role}")
    if config.stage != "sft" and not config.corpora:
        raise ConfigError(f"stage={config.stage} rates queries by what they retrieve: name the rows' sets in corpora")


ROWS: dict[str, Any] = {"verifier": VerifierRow, "thoughts": ThoughtsRow, "reader": ReaderRow}
PROMPTS = {"reader": PROMPT}  # of roles whose prompt has another name
AnyRow = VerifierRow | ThoughtsRow | ReaderRow


@dataclass
class RoleRows:
    """The rows of a role."""

    role: str  # `verifier`, `thoughts` or `reader`
    prompt: Prompt  # of the role at inference
    prompt_name: str  # name or path of a prompt that is not the role's own, else an empty text
    rows: list[AnyRow]  # all of them, in the order of the files
    digests: dict[str, str] = field(default_factory=dict)  # of the files, by name

    @cached_property
    def by_id(self) -> dict[str, Any]:
        return {row.id: row for row in self.rows}

    @cached_property
    def thoughts(self) -> dict[tuple[str, str], list[str]]:
        """The thoughts in all rows of a question, by its set and id."""
        texts: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            assert isinstance(row, ThoughtsRow)
            texts.setdefault((row.set, row.question_id), []).extend(t for t in (row.fast, row.slow) if t)
        return texts

    @property
    def settings(self) -> dict[str, Any]:
        """How the prompted role is to ask: a verifier is shown no more passages at once than in its training."""
        longest = max((len(shown(row)) for row in self.rows), default=0)
        return {"window": longest} if self.role == "verifier" else {}

    def split(self, folds: FoldConfig, fold: int | None) -> dict[str, Parts]:
        """Return which questions of each set train, validate and report."""
        found = {}
        for name in sorted({row.set for row in self.rows}):
            rows = [row for row in self.rows if row.set == name]
            texts = {row.question_id: getattr(row, "article", "") or row.question for row in rows}
            found[name] = divide(texts, folds, fold)
        return found

    def of(self, parts: Mapping[str, Parts], part: str) -> list[AnyRow]:
        """Return the rows of a part, in their order."""
        ids = {name: set(getattr(one, part)) for name, one in parts.items()}
        return [row for row in self.rows if row.question_id in ids[row.set]]


def read_role(role: str, paths: Sequence[str], prompt_name: str = "") -> RoleRows:
    """Read the rows of a role; `prompt_name` is of another prompt than the role's own.

    Raises DataError: no such file, a line that is no row, or a row that two files have.
    """
    prompt = load_prompt(prompt_name or PROMPTS.get(role, role))
    rows: dict[str, AnyRow] = {}
    digests = {}
    for path in map(Path, paths):
        for number, row in enumerate(read_rows(path, ROWS[role]), start=1):
            if row.id in rows:
                raise DataError(path, f"id {row.id!r} stands in another of the files, too", number)
            rows[row.id] = row
        digests[path.name] = file_digest(path)
    return RoleRows(role, prompt, prompt_name, list(rows.values()), digests)


def task_of(row: AnyRow) -> VerifierTask | ThoughtsTask | ReaderTask:
    """Return the task of a row's decision, with the passages that its chat shows."""
    question, passages = Question(row.question_id, row.question), shown(row)
    if isinstance(row, VerifierRow):
        return VerifierTask(question, Chain(row.chain, support=row.support), passages)
    if isinstance(row, ReaderRow):
        return ReaderTask(question, passages)
    with_chain, may_stop = row.source.get("chain") is not None, bool(row.source.get("may_stop"))
    return ThoughtsTask(question, passages, (), row.earlier, row.round, with_chain, may_stop)


def chat(row: AnyRow, prompt: str = "") -> tuple[Message, ...]:
    """Return the conversation about a row's decision, which ends with the teacher's reply; `prompt`: by another one."""
    task: Any = task_of(row)
    if isinstance(row, VerifierRow):
        return verifier_chat(task, row.selected, prompt)
    if isinstance(row, ReaderRow):
        numbers = [place for place, passage in enumerate(row.passages, start=1) if passage.id in row.cited]
        return brief_chat(task, next(iter(row.answers), ""), numbers, prompt)
    said = Thoughts(row.fast, row.slow, row.sufficient, row.source.get("chain"))
    return thoughts_chat(task, said, prompt)


def asked(row: AnyRow, prompt: str = "") -> tuple[Message, ...]:
    """Return the conversation that the role has about a row's decision, up to where the model speaks."""
    return chat(row, prompt)[:-1]


def reply_of(row: AnyRow) -> str:
    """Return the teacher's reply."""
    return chat(row)[-1].content


def shown(row: AnyRow) -> tuple[Passage, ...]:
    """Return the passages that the role's chat shows: a verifier's row holds more, and mined ones behind them."""
    passages = {passage.id: passage.passage for passage in row.passages}
    ids = row.source.get("chat") or list(passages)[: row.source.get("seen", len(passages))]
    return tuple(passages[id_] for id_ in ids)


class Examples:
    """Turns rows into conversations for TRL, which tokenises them by the chat template, as inference does.

    Args:
        network: the model, whose limit of length and whose end tokens count.
        prompt: name of another prompt than the role's own, or an empty text.
        dropped: counts the rows that are left out, by reason.

    Raises:
        ConfigError: the tokenizer's end of a turn would not end a reply.
    """

    def __init__(self, network: Any, tokenizer: Any, config: TrainLanguageConfig, prompt: str) -> None:
        self.tokenizer, self.config, self.prompt_name = tokenizer, config, prompt
        self.context = config.model.context or own_context(network.config, tokenizer)
        self.dropped: Counter[str] = Counter()
        ends = network.generation_config.eos_token_id
        self.ends = [ends] if isinstance(ends, int) else list(ends or ())
        if tokenizer.eos_token_id is None or tokenizer.eos_token_id not in self.ends:
            raise ConfigError(
                f"the end token of {tokenizer.name_or_path!r} is {tokenizer.eos_token!r}, and replies end with others "
                "by its generation_config.json: a model trained so would never stop; mend eos_token_id there"
            )

    def prompt(self, row: AnyRow) -> list[dict[str, str]]:
        """Return the turns up to where the model speaks."""
        return [{"role": m.role, "content": m.content} for m in asked(row, self.prompt_name)]

    def fits(self, row: AnyRow, *replies: str, length: int = 0) -> bool:
        """Tell whether a row's prompt with its longest reply, or one of so many tokens, is within the context."""
        lengths = [len(self.tokenizer(text)["input_ids"]) + 1 for text in replies]
        whole = len(encode(self.tokenizer, asked(row, self.prompt_name))) + max([length, *lengths])
        is_long = self.context is not None and whole > self.context
        self.dropped.update(["too long"] * is_long)
        return not is_long

    def supervised(self, row: AnyRow) -> list[dict[str, Any]]:
        """Return the teacher's reply to a row; the loss is on the reply."""
        text = reply_of(row)
        return [{"prompt": self.prompt(row), "completion": _said(text)}] if self.fits(row, text) else []

    def compared(self, row: ThoughtsRow, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return pairs of replies to a row, the better one first."""
        if not pairs:
            self.dropped["without a pair of replies"] += 1
        return [
            {"prompt": self.prompt(row), "chosen": _said(better), "rejected": _said(worse)}
            for better, worse in pairs
            if self.fits(row, better, worse)
        ]

    def drawn(self, row: ThoughtsRow, corpora: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the prompt of a row whose replies can be rewarded: its set, its pool and missing gold are known."""
        if row.set not in corpora:
            self.dropped["of a set that corpora does not name"] += 1
        elif "found" not in corpora[row.set](row, ()):
            self.dropped["with nothing left to find"] += 1
        elif self.fits(row, length=self.config.reply_tokens):
            return [{"prompt": self.prompt(row), "row": row.id}]
        return []


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]
