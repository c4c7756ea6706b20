"""Language models as roles: settings, rows as conversations with a reply to be learned, and ratings of replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt

from gnnrag.config import DataConfig, IndexConfig
from gnnrag.errors import ConfigError
from gnnrag.llm.base import Message
from gnnrag.llm.local import encode, own_context
from gnnrag.metrics.answer import exact_match, f1
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.base import Answer, Chain, ReaderTask, Thoughts, ThoughtsTask, Verdict, VerifierTask
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.reader import reader_chat
from gnnrag.roles.thoughts import parse_thoughts, thoughts_chat
from gnnrag.roles.verifier import verifier_chat
from gnnrag.session import normalised
from gnnrag.training.base import promotion_metrics
from gnnrag.training.config import Count, TrainConfig
from gnnrag.training.rows import DEPTH, ReaderRow, ThoughtsRow, VerifierRow, gain
from gnnrag.training.sets import RowsConfig, open_retriever
from gnnrag.types import OnProgress, Passage, Query, Question


@dataclass
class ModelConfig:
    """The model that is trained under an adapter (LoRA)."""

    base: str = ""  # folder or hub name (name@revision)
    # of the frozen weights; auto: bfloat16 on a GPU, else float32. What trains is float32
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    context: int | None = None  # most tokens of prompt and reply together; null: the model's own limit


@dataclass
class CorpusConfig:
    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    retriever: str = "dense"  # with its default settings


@dataclass
class TrainLanguageConfig(TrainConfig):
    kind: Literal["causal"] = "causal"
    # sft: on the teacher's replies; of thoughts also dpo: preferences, grpo: by what replies find (arXiv 2402.03300)
    stage: Literal["sft", "dpo", "grpo"] = "sft"
    start: str | None = None  # run or checkpoint to go on from, of the stage before
    sets: dict[str, RowsConfig] = field(default_factory=dict)  # by name
    prompt: str | None = None  # name or .yaml of another prompt than the role's: a trained model needs no long one
    validation: Annotated[int, Ge(0)] | None = None  # most validation rows, drawn by the seed; null: all
    model: ModelConfig = field(default_factory=ModelConfig)
    lora: dict[str, Any] = field(default_factory=dict)  # of peft.LoraConfig; default target_modules: all-linear
    corpora: dict[str, CorpusConfig] = field(default_factory=dict)  # by set; thoughts: measures what they retrieve
    margin: Annotated[float, Gt(0)] = 0.1  # dpo: least difference of gains between the two replies of a pair
    pairs: Count = 4  # dpo: most of one row and one kind of thought, those of the largest difference first
    reply_tokens: Count = 160  # limit of a reply
    llm_settings: dict[str, Any] = field(default_factory=dict)  # of `hf` for the report: max_batch, batch_tokens, ...


def check_language(config: TrainLanguageConfig, role: str) -> None:
    """Raise ConfigError where settings contradict each other."""
    if not (config.model.base or config.start):
        raise ConfigError("model.base: name the folder of a model, or its name on the hub")
    if config.stage != "sft" and role != "thoughts":
        raise ConfigError(f"stage={config.stage}: only thoughts have queries to rate, not {role}")
    if config.stage != "sft" and not config.corpora:
        raise ConfigError(f"stage={config.stage} rates queries by what they retrieve: name the sets in corpora, too")
    if others := sorted(config.corpora.keys() - config.sets.keys()):
        raise ConfigError(f"corpora.{others[0]}: there is no such set of rows, only {', '.join(config.sets)}")


AnyRow = VerifierRow | ThoughtsRow | ReaderRow


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
    """Return the conversation of a row, up to the teacher's reply, by the role's prompt or the one named."""
    task: Any = task_of(row)
    if isinstance(row, VerifierRow):
        return verifier_chat(task, row.selected, prompt)
    if isinstance(row, ReaderRow):
        numbers = [place for place, passage in enumerate(row.passages, start=1) if passage.id in row.cited]
        return reader_chat(task, next(iter(row.answers), ""), numbers, prompt)
    said = Thoughts(row.fast, row.slow, row.sufficient, row.source.get("chain"))
    return thoughts_chat(task, said, prompt)


def asked(row: AnyRow, prompt: str = "") -> tuple[Message, ...]:
    """Return the conversation that the role has about a row's decision, up to where the model speaks."""
    return chat(row, prompt)[:-1]


def reply_of(row: AnyRow) -> str:
    return chat(row)[-1].content


def shown(row: AnyRow) -> tuple[Passage, ...]:
    """Return the passages that the role's chat shows: a verifier's row holds more."""
    passages = {passage.id: passage.passage for passage in row.passages}
    return tuple(passages[id_] for id_ in row.source.get("chat") or passages)


class Examples:
    """Turns rows into conversations for TRL, which tokenises them by the chat template, as inference does.

    Args:
        network: the model, whose limit of length and whose end tokens count.
        dropped: counts the rows that are left out, by reason.

    Raises:
        ConfigError: the tokenizer's end of a turn would not end a reply.
    """

    def __init__(self, network: Any, tokenizer: Any, config: TrainLanguageConfig) -> None:
        self.tokenizer, self.config, self.prompt_name = tokenizer, config, config.prompt or ""
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

    def drawn(self, name: str, row: ThoughtsRow, corpus: Any) -> list[dict[str, Any]]:
        """Return the prompt of a row whose replies can be rewarded: there is gold that its pool lacks."""
        if corpus is None or "found" not in corpus.scores(row, ()):
            self.dropped["with nothing to find" if corpus else "of a set that corpora does not name"] += 1
        elif self.fits(row, length=self.config.reply_tokens):
            return [{"prompt": self.prompt(row), "row": [name, row.id]}]
        return []


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


# --------------------------------------------------------------------------------------------------- ratings of replies
@dataclass
class CorpusRetriever:
    """The retriever of a set, by which its thoughts are rated."""

    retriever: Retriever
    inputs: Mapping[str, Any]  # fingerprints of all that its rankings depend on

    def rankings(self, queries: Iterable[str]) -> list[tuple[str, ...]]:
        """Return the ids of the first `DEPTH` passages for each query."""
        asked = [Query(text, top_k=DEPTH) for text in queries]
        return [tuple(ranking.ids[:DEPTH]) for ranking in self.retriever.retrieve(asked)] if asked else []

    def scores(self, row: ThoughtsRow, rankings: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return what rankings add to the pool of a decision; nothing where the row has no pool or no gold.

        `gain` is as in `rows`. `found` is the share of the gold passages outside the pool that a ranking has; where
        the pool has them all, there is no `found`.
        """
        if not (row.pool and row.gold):
            return {}
        missing = set(row.gold) - set(row.pool[:DEPTH])
        new = missing.intersection(id_ for ranking in rankings for id_ in ranking)
        return {"gain": gain(rankings, row.pool, row.gold)} | ({"found": len(new) / len(missing)} if missing else {})


def open_corpus(name: str, config: CorpusConfig, progress: OnProgress) -> CorpusRetriever:
    opened, retriever = open_retriever(f"corpora.{name}.retriever", config.retriever, config, progress)
    return CorpusRetriever(retriever, opened.inputs)


def ranked_thoughts(
    rows: Mapping[tuple[str, str], ThoughtsRow], corpora: Mapping[str, CorpusRetriever]
) -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
    """Return each question's recorded thoughts, whoever had them, with the passages that each retrieves.

    Rows are given by set and id, and questions are returned by set and id. Each question is one batch of queries.
    """
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for (name, _), row in rows.items():
        said = {normalised(text): text for text in (row.fast, row.slow) if text}
        texts.setdefault((name, row.question_id), {}).update(said)
    return {
        (name, id_): dict(zip(said.values(), corpora[name].rankings(said.values()), strict=True))
        for (name, id_), said in texts.items()
        if name in corpora
    }


def reply_pairs(
    row: ThoughtsRow, ranked: Mapping[str, Sequence[str]], corpus: CorpusRetriever, config: TrainLanguageConfig
) -> list[tuple[str, str]]:
    """Return pairs of replies, the better one first; of each kind of thought those with the largest difference.

    `ranked` are all thoughts recorded for the question, with what each retrieves (`ranked_thoughts`). A pair differs
    in one thought only, so that the difference of their gains over the row's pool is due to that thought.
    """
    pairs, task = [], task_of(row)
    own: dict[str, Any] = {"fast": row.fast, "slow": row.slow}
    assert isinstance(task, ThoughtsTask)
    gains = {text: corpus.scores(row, [ranking]).get("gain", 0.0) for text, ranking in ranked.items()}
    for kind, other in (("fast", row.slow), ("slow", row.fast)):
        rivals = [text for text in gains if normalised(text) != normalised(other or "")]
        if not own[kind] or not rivals:
            continue
        best = max(rivals, key=lambda text: gains[text])
        worse = [text for text in rivals if gains[best] - gains[text] >= config.margin - 1e-9]
        for text in sorted(worse, key=lambda text: gains[text])[: config.pairs]:
            better, poorer = (
                thoughts_chat(task, Thoughts(**own | {kind: thought}, chain=row.source.get("chain")))[-1].content
                for thought in (best, text)
            )
            pairs.append((better, poorer))
    return pairs


MALFORMED = -0.1  # reward of such a reply


def reward(row: ThoughtsRow, reply: str, is_whole: bool, corpus: CorpusRetriever) -> float:
    """Return the share of the missing gold passages that a reply's queries find.

    `MALFORMED` where it is cut off (not `is_whole`), unreadable or states an answer.
    """
    task = task_of(row)
    assert isinstance(task, ThoughtsTask)
    try:
        thoughts = parse_thoughts(reply, task.may_stop, task.with_chain)
    except MalformedError:
        return MALFORMED
    if not is_whole or thoughts.flags:
        return MALFORMED
    queries = [text for text in (thoughts.fast, thoughts.slow) if text]
    return corpus.scores(row, corpus.rankings(queries))["found"]


def reply_scores(row: AnyRow, result: Any, corpus: CorpusRetriever | None) -> dict[str, float]:
    """Return the metrics of what a role made of a row; of thoughts, what they find, and whether there are two."""
    if isinstance(row, ReaderRow):
        return answer_scores(row, result)
    if isinstance(row, VerifierRow):
        return verdict_scores(row, result)
    queries = [text for text in (result.fast, result.slow) if text]
    scores = {"complete": float(len(queries) == 2)}
    if corpus and row.pool and row.gold:  # else nothing tells what the queries found
        scores |= corpus.scores(row, corpus.rankings(queries))
    return scores


def verdict_scores(row: VerifierRow, verdict: Verdict) -> dict[str, float]:
    """Compare a selection with the gold among the passages shown; where none is known, with the teacher's."""
    ids = [passage.id for passage in task_of(row).passages]
    labels = np.array([id_ in (row.gold or row.selected) for id_ in ids], dtype=bool)
    return promotion_metrics(labels, [ids.index(id_) for id_ in verdict.selected if id_ in ids])


def answer_scores(row: ReaderRow, answer: Answer) -> dict[str, float]:
    """Return EM, F1, whether exactly the passages of the row are cited, and whether the answer abstains.

    Where the passages hold no answer, abstaining is right; a reader that failed has not abstained, and is wrong.
    """
    abstained = float("abstained" in answer.flags)
    cited = float(set(answer.support) == set(row.cited) and "reader_failed" not in answer.flags)
    if not row.answers:
        return {"em": abstained, "f1": abstained, "cited": cited, "abstained": abstained}
    scores = {"em": exact_match(answer.text, row.answers), "f1": f1(answer.text, row.answers)}
    return {**scores, "cited": cited, "abstained": abstained}
