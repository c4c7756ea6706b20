"""Settings of a language model's training, and rows of its role as tokens: what it is shown and what it is to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from gnnrag.training.config import Count, Parts, TrainConfig, TrainingRunConfig, divide, draw
from gnnrag.training.rows import ReaderRow, ThoughtsRow, Turn, VerifierRow, read_rows
from gnnrag.types import Passage, Question


@dataclass
class RowsConfig:
    """What is trained on."""

    rows: list[str] = field(default_factory=list)  # files of gnnrag collect-traces
    prompt: str | None = None  # name or .yaml of another prompt than the role's: a trained model needs no long one
    divide: Literal["folds", "rows"] = "folds"  # questions: by folds, or as the rows' `part` says


@dataclass
class ModelConfig:
    """The model that is trained under an adapter (LoRA)."""

    base: str = ""  # folder or hub name (name@revision)
    # of the frozen weights; auto: bfloat16 on a GPU, else float32. What trains is float32
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    context: int | None = None  # most tokens of prompt and reply together; null: the model's own limit
    checkpointing: bool = False  # of gradients: activations are computed again, which takes time and saves memory


@dataclass
class LoraSettings:
    """Low-rank adapters (LoRA, arXiv 2106.09685): W + (alpha / rank) B A with W frozen."""

    rank: Count = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: list[str] = field(default_factory=list)  # names of layers; empty: all linear ones but the output


@dataclass
class PreferenceConfig:
    """Direct preference optimisation (DPO, arXiv 2305.18290), stage `dpo`."""

    beta: Annotated[float, Gt(0)] = 0.1  # how far the model may move from the reference: larger is nearer
    # weight of the chosen reply's mean -log p on top (arXiv 2404.19733): keeps replies in their form
    sft: Annotated[float, Ge(0)] = 0.0
    margin: Annotated[float, Gt(0)] = 0.1  # least difference of gains between the two of a pair
    pairs: Count = 4  # of one row and one kind of thought, those of the largest difference first


@dataclass
class PolicyConfig:
    """Group relative policy optimisation (GRPO, arXiv 2402.03300), stage `grpo`; formulas: `language/policy.py`."""

    group: Annotated[int, Ge(2)] = 8  # replies drawn to a prompt; a micro-batch of n rows takes n times as many replies
    malformed: float = -0.1  # reward of a reply that is cut off, unreadable, or states an answer instead of asking
    beta: Annotated[float, Ge(0)] = 0.0  # weight of the distance to the model without its adapter; 0: none


@dataclass
class CorpusConfig:
    """Where the thoughts of a set are retrieved with, to measure what they bring."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    retriever: str = "dense"  # with its default settings
    licence: str = ""  # of the rows made from it, for the model card


@dataclass
class ValidationConfig:
    """How validation and report are measured: replies are generated, parsed, and put to use."""

    rows: Annotated[int, Ge(0)] | None = None  # most validation rows, by a hash of their ids; 0: none; null: all
    batch: Count = 16  # replies generated, or scored, together; of DPO, pairs of them
    batch_tokens: Count = 32768  # limit of rows times (longest prompt + reply) of such a batch: its memory
    tokens: Count = 160  # of a reply
    metric: str | None = None  # that decides which weights are kept; null: f1; gain, or likelihood without corpora


@dataclass
class ExportRunConfig(TrainingRunConfig):
    """The run directory, and what is left in it."""

    export: Literal["adapter", "both"] = "adapter"  # both: the merged model, too, in folder merged


@dataclass
class TrainLanguageConfig(TrainConfig):
    """Everything that training of a language model for a role reads."""

    kind: Literal["causal", "seq2seq"] = "causal"  # as the model is
    # sft: on the teacher's replies; of thoughts also dpo: preferences, grpo: by what replies find
    stage: Literal["sft", "dpo", "grpo"] = "sft"
    start: str | None = None  # run or checkpoint to go on from: that of stage sft
    data: RowsConfig = field(default_factory=RowsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    lora: LoraSettings = field(default_factory=LoraSettings)
    preference: PreferenceConfig = field(default_factory=PreferenceConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    corpora: dict[str, CorpusConfig] = field(default_factory=dict)  # by set; thoughts: measures what they retrieve
    judging: ValidationConfig = field(default_factory=ValidationConfig)
    run: ExportRunConfig = field(default_factory=ExportRunConfig)


def check_language(config: TrainLanguageConfig, role: str) -> None:
    """Raise ConfigError where there is nothing to train on, or settings contradict each other."""
    if not config.data.rows:
        made = "training/make_rows.py" if role == "reader" else "gnnrag collect-traces"
        raise ConfigError(f"data.rows: name at least one file {role}.jsonl of {made}")
    if not (config.model.base or config.start):
        raise ConfigError("model.base: name the folder of a model, or its name on the hub")
    if config.stage != "sft" and role != "thoughts":
        raise ConfigError(f"stage={config.stage}: only thoughts have queries to rate, not the {role}")
    if config.stage == "grpo" and not config.corpora:
        raise ConfigError("stage=grpo rewards what queries retrieve: name the rows' sets in corpora")
    if config.stage == "grpo" and config.policy.beta and config.start:
        raise ConfigError(
            f"policy.beta={config.policy.beta}: the reference is the model without the adapter that trains; with start "
            "there is none. Give model.base=RUN/merged of the first stage, or policy.beta=0"
        )
    if config.cross and config.data.divide == "rows":
        raise ConfigError("data.divide=rows has one division; cross=true needs data.divide=folds")


ROWS: dict[str, Any] = {"verifier": VerifierRow, "thoughts": ThoughtsRow, "reader": ReaderRow}
PROMPTS = {"reader": PROMPT}  # of roles whose prompt has another name
PARTS = ("train", "validation", "report")
AnyRow = VerifierRow | ThoughtsRow | ReaderRow


@dataclass(frozen=True)
class Example:
    """A row as tokens."""

    row: AnyRow  # where it comes from
    prompt: tuple[int, ...]  # tokens of the prompt
    reply: tuple[int, ...]  # tokens that the model is to give, the end among them


@dataclass
class RoleRows:
    """The rows of a role."""

    role: str  # `verifier`, `thoughts` or `reader`
    prompt: Prompt  # of the role at inference
    prompt_name: str  # name or path of a prompt that is not the role's own, else an empty text
    rows: list[AnyRow]  # all of them, in the order of the files
    dropped: Counter[str] = field(default_factory=Counter)  # how many rows were left out, by reason
    digests: dict[str, str] = field(default_factory=dict)  # of the files, by name

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
                found[name] = divide(ids, config.folds, fold)
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

    `prompt_name` is of another prompt, which then takes the place of the one that the teacher was asked with. Raises
    DataError: no such file, a line that is no row, a row that two files have, or one that shows another prompt.
    """
    prompt = load_prompt(prompt_name or PROMPTS.get(role, role))
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


def task_of(row: AnyRow) -> VerifierTask | ThoughtsTask | ReaderTask:
    """Return the task of a row's decision, with the passages that its chat shows."""
    question, passages = Question(row.question_id, row.question), shown(row)
    if isinstance(row, VerifierRow):
        return VerifierTask(question, Chain(row.chain, support=row.support), passages)
    if isinstance(row, ReaderRow):
        return ReaderTask(question, passages)
    with_chain, may_stop = row.source.get("chain") is not None, bool(row.source.get("may_stop"))
    return ThoughtsTask(question, passages, (), row.earlier, row.round, with_chain, may_stop)


def asked(row: AnyRow, prompt: str = "") -> tuple[Message, ...]:
    """Return the conversation that the role has about a row's decision, up to where the model speaks.

    `prompt` names another prompt than the role's own.
    """
    task = task_of(row)
    if isinstance(task, VerifierTask):
        return verifier_chat(task, (), prompt)[:-1]
    if isinstance(task, ReaderTask):
        return brief_chat(task, "", prompt)[:-1]
    return thoughts_chat(task, Thoughts(), prompt)[:-1]


def shown(row: AnyRow) -> tuple[Passage, ...]:
    """Return the passages that the role's chat shows: a verifier's row holds more, and mined ones behind them."""
    passages = {passage.id: passage.passage for passage in row.passages}
    chat = row.source.get("chat") or list(passages)[: row.source.get("seen", len(passages))]
    return tuple(passages[id_] for id_ in chat)


class Encoder:
    """Turns conversations into tokens, with the model's own limits.

    Raises:
        ConfigError: the tokenizer's end of a turn would not end a reply.
    """

    def __init__(
        self, tokenizer: Any, context: int | None, is_seq2seq: bool, settings: Any, ends: Iterable[int]
    ) -> None:
        self.tokenizer, self.is_seq2seq = tokenizer, is_seq2seq
        self.context = context or own_context(settings, tokenizer, is_seq2seq)
        self.end = tokenizer.eos_token_id
        if self.end is None or self.end not in set(ends):
            raise ConfigError(
                f"the end token of {tokenizer.name_or_path!r} is {tokenizer.eos_token!r}, and replies end with others "
                "by its generation_config.json: a model trained so would never stop; mend eos_token_id there"
            )

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the tokens of a prompt, as inference makes them."""
        return tuple(encode(self.tokenizer, messages, "auto", {}, is_seq2seq=self.is_seq2seq))

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

    `prompt` names another prompt than the role's own, or is an empty text.
    """
    examples = []
    for row in rows:
        if not row.messages:
            note("without a reply")
            continue
        tokens, reply = encoder.prompt(asked(row, prompt)), encoder.reply(row.messages[-1].content)
        if encoder.fits(tokens, reply):
            examples.append(Example(row, tokens, reply))
        else:
            note("too long")
    return examples


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
