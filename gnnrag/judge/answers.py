"""What is judged: settings, the answers of finished runs, and the gold that they are held against."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from gnnrag.common.files import file_digest, read_journal, read_json
from gnnrag.common.records import interpreting, recorded_data
from gnnrag.config import EvaluateConfig
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError, GnnragError, nearest
from gnnrag.index_config import one_of
from gnnrag.roles.prompting import PromptedConfig
from gnnrag.run.evaluate import load_questions_for
from gnnrag.run.rundir import read_predictions
from gnnrag.types import Passage, Question

# ----------------------------------------------------------------------------------------------------------- settings
ANSWER, EVIDENCE = "judge_answer", "judge_evidence"  # the prompts: what a response is rated beside
# GraphSearch's six criteria and their prompt. The first three make the A-Score, the others the E-Score.
CRITERIA = {
    "correctness": ANSWER,
    "logical_coherence": ANSWER,
    "comprehensiveness": ANSWER,
    "relevance": EVIDENCE,
    "knowledgeability": EVIDENCE,
    "factuality": EVIDENCE,
}


@dataclass
class SampleConfig:
    """Which questions of a run are judged."""

    limit: int | None = None  # so many, drawn at random; null: all
    types: list[str] = field(default_factory=list)  # only questions of these types; empty: of any
    seed: int = 0  # of the draw: two runs on the same questions get the same ones


@dataclass
class ShowConfig:
    """What the judge is shown."""

    evidence: str = one_of("auto", "passages", "triples", "both")  # auto: passages; triples where there are none
    max_words: int = 600  # of an answer, the same for every run; what is more is cut before the end


@dataclass
class AskConfig:
    """How the judge is asked. Sampling settings left at null are the backend's."""

    criteria: list[str] = field(default_factory=lambda: list(CRITERIA))  # of the scores: a call each
    ties: bool = False  # the pairwise judge may find no difference; the paper asks for a winner
    temperature: float | None = None
    repeat_temperature: float | None = None  # of the second and later repeats; null: the same
    seed: int | None = None  # of the first repeat; the n-th after it adds n to it (or to the backend's, or to 0)
    max_tokens: int = 1024
    retries: int = 2  # after a malformed reply; then the value is missing

    def sampling(self, repeat: int, seed: int | None = None) -> PromptedConfig:
        """Return the sampling of a repeat, from 0; seeds differ, or a cache would answer one repeat with another."""
        if not repeat:
            return PromptedConfig(temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed)
        first = self.seed if self.seed is not None else seed or 0
        warmth = self.temperature if self.repeat_temperature is None else self.repeat_temperature
        return PromptedConfig(temperature=warmth, max_tokens=self.max_tokens, seed=first + repeat)


@dataclass
class CountConfig:
    """How replies become figures."""

    unanswered: str = one_of("zero", "exclude")  # failed or empty: score 0, or lose the comparison, without a call
    identical: str = one_of("tie", "ask")  # two answers of a pair that read the same
    right: int = 8  # from this correctness on an answer counts as right, for McNemar's test of two runs
    seed: int = 0  # of the bootstrap behind the intervals
    least: int = 20  # so many questions must have a value before a run is called better, or a paper's table shows it
    missing: float = 0.1  # nor is it where a larger share of what should have a value has none

    def is_enough(self, counted: int, asked: int) -> bool:
        """Tell whether so many values of so many say something."""
        return counted >= self.least and asked - counted <= self.missing * asked


@dataclass
class JudgeBudgetConfig:
    """Limits for all that is judged into one folder, earlier sessions included; null is unlimited."""

    max_calls: int | None = None
    max_tokens: int | None = None  # prompt plus completion tokens
    max_cost: float | None = None  # in the currency of the backend's prices


@dataclass
class JudgeConfig:
    """Everything `gnnrag judge` reads."""

    kind: str = one_of("scores", "pairwise")
    runs: list[str] = field(default_factory=list)  # run directories; pairwise: the first against each of the others
    out: str | None = None  # the folder of judgements; null: judgements/ in the run that is judged
    name: str | None = None  # of this judgement in that folder; null: the kind
    data_path: str | None = None  # where the data of the runs lies now; null: where it was
    judged: str = one_of("answer", "full")  # the short answer, or with the reasoning that was written before it
    repeats: int = 1  # the first gives the figures; all together, how well the judge agrees with itself
    sample: SampleConfig = field(default_factory=SampleConfig)
    show: ShowConfig = field(default_factory=ShowConfig)
    ask: AskConfig = field(default_factory=AskConfig)
    count: CountConfig = field(default_factory=CountConfig)
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    budget: JudgeBudgetConfig = field(default_factory=JudgeBudgetConfig)
    concurrency: int = 8


def check_judge(config: JudgeConfig) -> None:
    """Raise ConfigError for too few runs, an unknown criterion, or a number out of range: before the first call."""
    c = config
    if len(c.runs) < (least := 2 if c.kind == "pairwise" else 1):
        raise ConfigError(f"runs={c.runs}: kind={c.kind} takes at least {least}, as runs=[RUN{',RUN' * (least - 1)}]")
    if len({Path(run).resolve() for run in c.runs}) < len(c.runs):
        raise ConfigError(f"runs={c.runs}: each run once")
    names = [Path(run).resolve().name for run in c.runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"runs={c.runs}: several folders are called {twice[0]!r}, and figures go by these names; rename all but one"
        )
    if c.name is not None and (not c.name or Path(c.name).name != c.name):
        raise ConfigError(f"name={c.name!r}: must be a folder's name; where it lies is out")
    for criterion in c.ask.criteria:
        if criterion not in CRITERIA:
            raise ConfigError(f"ask.criteria: {criterion!r} is unknown. {nearest(criterion, CRITERIA)}")
    if not c.ask.criteria or len(set(c.ask.criteria)) < len(c.ask.criteria):
        raise ConfigError(f"ask.criteria={c.ask.criteria}: give at least one, and each once")
    numbers = (
        ("repeats", c.repeats, 1),
        ("concurrency", c.concurrency, 1),
        ("sample.limit", c.sample.limit, 1),
        ("show.max_words", c.show.max_words, 1),
        ("ask.retries", c.ask.retries, 0),
        ("ask.max_tokens", c.ask.max_tokens, 1),
        ("count.right", c.count.right, 0),
        ("count.least", c.count.least, 1),
        ("count.missing", c.count.missing, 0),
    )
    for name, value, low in numbers:
        if value is not None and value < low:
            raise ConfigError(f"{name}={value}: must be at least {low}")


# ------------------------------------------------------------------------------------------------------------ answers
@dataclass(frozen=True)
class JudgedRun:
    """A finished run, as far as a judge is concerned; `fingerprint` is the SHA-256 of `predictions.jsonl`.

    `answers` are the judged texts by question id, empty for none or `failed`; `short` ids have the short answer for
    want of reasoning; `finals` are short answers, which no cut may lose.
    """

    path: Path
    answers: Mapping[str, str]
    failed: frozenset[str]
    short: frozenset[str]
    models: frozenset[str]
    fingerprint: str
    finals: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.resolve().name


def read_run(path: Path, judged: str) -> JudgedRun:
    """Read a finished run; `judged` is `answer`, or `full` for the reasoning with it.

    Raises GnnragError where the folder is no run, has not ended, or has no traces to read the reasoning from.
    """
    predictions = read_predictions(path)
    if not (path / "metrics.json").is_file():
        raise GnnragError(f"run {path} has not ended: run its command again")
    failed = frozenset(p.question_id for p in predictions if p.error is not None)
    answers = {p.question_id: "" if p.question_id in failed else p.answer.strip() for p in predictions}
    finals = dict(answers)
    short: set[str] = set()
    if judged == "full":
        with interpreting(path / "traces.jsonl"):
            traces = {row["question_id"]: row["events"] for row in _traces(path)}
            for prediction in predictions:
                id_ = prediction.question_id
                text = long_answer(traces.get(id_, ()), prediction.answer) if answers[id_] else ""
                short |= {id_} if answers[id_] and not text else set()
                answers[id_] = text or answers[id_]
    fingerprint = file_digest(path / "predictions.jsonl")
    return JudgedRun(path, answers, failed, frozenset(short), _models(path), fingerprint, finals)


def long_answer(events: Sequence[Mapping[str, Any]], answer: str) -> str:
    """Return the reasoning with the answer out of a trace; empty where no language model's reasoning led to it.

    That is `final` (GraphSearch), else what the reader thought, if it was a language model: what others note was not
    written for a person who asks.
    """
    for event in reversed(events):
        if event["event"] == "final" and event["answer"] == answer:
            return str(event["text"]).strip()
        if event["event"] == "answer":
            is_written = any(e["event"] == "llm" and e["role"] == "reader" for e in events)
            wrote = is_written and event["text"] == answer and event["thought"].strip()
            return f"{event['thought'].strip()}\n{answer.strip()}" if wrote else ""
    return ""


def load_data(runs: Sequence[JudgedRun], data_path: str | None) -> Dataset:
    """Load the data that all runs were made on, from `data_path` or where the first run found them.

    Raises ConfigError where the runs' questions differ, DataError where the data are not those of the runs.
    """
    settings, inputs = recorded_data(runs[0].path, "give runs that gnnrag evaluate made"), _inputs(runs[0].path)
    if data_path:
        settings.path = data_path
    data = load_questions_for(EvaluateConfig(data=settings))
    for run in runs:
        theirs = _inputs(run.path)
        if set(run.answers) != set(runs[0].answers) or theirs["questions"] != inputs["questions"]:
            raise ConfigError(
                f"{run.name} and {runs[0].name} answered different questions; judge runs on the same data.split, "
                "data.questions, data.limit and data.sample"
            )
    if data.fingerprints != inputs:
        raise DataError(settings.path, f"is not what {runs[0].name} was made on; give data_path=FOLDER")
    return data


def draw(questions: Sequence[Question], sample: SampleConfig) -> list[Question]:
    """Return the questions to judge, in order; smaller limits give subsets. Raises ConfigError for a type none has."""
    types = {question.type for question in questions}
    for name in sample.types:
        if name not in types:
            raise ConfigError(f"sample.types: {name!r} is no type of these questions. {nearest(name, types)}")
    places = [i for i, question in enumerate(questions) if not sample.types or question.type in sample.types]
    Random(sample.seed).shuffle(places)  # so that a larger limit only adds questions to those of a smaller one
    return [questions[i] for i in sorted(places[: sample.limit])]


def golden_answer(question: Question) -> str:
    """Return the gold answers, a line each; empty where the benchmark has none."""
    return "\n".join(dict.fromkeys(question.answers))


def golden_evidence(question: Question, passages: Mapping[str, Passage], kind: str) -> str:
    """Return the text of the gold passages, and the gold triples, a line each; empty where there is none.

    `kind` is `passages`, `triples`, `both`, or `auto`: passages, and triples for questions without any.
    """
    texts = [passages[id_].content for id_ in question.gold if id_ in passages]
    triples = [" | ".join(triple) for triple in question.evidence]
    if kind == "passages" or (kind == "auto" and texts):
        triples = []
    return "\n\n".join([*(texts if kind != "triples" else ()), *(["\n".join(triples)] if triples else [])])


def _traces(path: Path) -> list[Any]:
    if not (path / "traces.jsonl").is_file():
        raise GnnragError(f"{path} has no traces.jsonl to read the reasoning from; give judged=answer")
    return read_journal(path / "traces.jsonl")


def _inputs(path: Path) -> dict[str, str]:
    with interpreting(path / "meta.json"):
        try:
            return dict(read_json(path / "meta.json")["inputs"]["data"])
        except FileNotFoundError as error:
            raise ValueError("there is none") from error


def _models(path: Path) -> frozenset[str]:
    with interpreting(path / "log.jsonl"):
        rows = [row.get("roles", {}) for row in read_journal(path / "log.jsonl") if row.get("event") == "predicted"]
        asked = [role.get("llm", {}).get("model") for roles in rows for role in roles.values()]
        return frozenset(str(model) for model in asked if model)


# The text of an answer that a judge is shown: without what tells the method apart, and within one cap for all.

_NAMES = (
    r"(?:(?:final|short|interim|sub|logic(?:al)?|fast|slow)[ \t-]+)?(?:answer|response|reply|thoughts?|reasoning|draft|"
    r"conclusion|summary|evidence|paths?|context)(?:[ \t]+\d+)?"
)
# In front of text, or alone in a line: parts of an answer as methods call them, which would tell who wrote it.
_LABEL = re.compile(rf"^[ \t*_]*{_NAMES}[*_]*[ \t]*:[*_]*[ \t]*", re.IGNORECASE)
_HEADING = re.compile(rf"{_NAMES}[ \t]*:?", re.IGNORECASE)
_HASHES = re.compile(r"#{1,6}[ \t]+")
_CLOSING_HASHES = re.compile(r"(?<=[ \t])#+$")
_BOLD = re.compile(r"^[ \t]*(?:\*{2,3}([^*\n]+)\*{2,3}|__([^\n]+?)__)(:?)[ \t]*$")
_RULE = re.compile(r"[ \t]*(?:={3,}|-{3,}|\*{3,}|_{3,})[ \t]*")
_NESTED = 8  # marks around marks that are looked for in a line; of a person's there are three
_TAIL = 4  # of a text that is cut, one word in so many is of its end


def plain_text(text: str) -> str:
    """Return a text without labels, rules, and marks of headings and of bold lines.

    A line goes only if it is a rule, or a heading that names a part of an answer (`## Logic draft`, `**Answer**`); of
    others the marks alone go. The last line stays even if it reads like a heading: `**Paris**` may be the answer.
    """
    lines = [line for line in text.splitlines() if not _RULE.fullmatch(line)]
    while lines and not lines[-1].strip():
        lines.pop()
    plain = []
    for position, line in enumerate(lines):
        bare, is_marked = _unmarked(line)
        said = _LABEL.sub("", bare)
        is_heading = not said.strip() or (is_marked and _HEADING.fullmatch(bare.strip()))
        if not line.strip() or not is_heading:
            plain.append(_unmarked(said)[0])
        elif position == len(lines) - 1:
            plain.append(bare)
    return re.sub(r"\n\s*\n\s*", "\n\n", "\n".join(plain)).strip() or text.strip()


def shortened(text: str, max_words: int, plain: bool = False, answer: str = "") -> str:
    """Return at most `max_words` blank-parted words: what lies before the text's end is cut, `…` in its place.

    `plain` is as in `plain_text`. `answer` stays: where neither beginning nor end holds it, it stands for the end; one
    longer than `max_words` is what is shortened.
    """
    if plain:
        text, answer = plain_text(text), plain_text(answer)
    words = list(re.finditer(r"\S+", text))
    if len(words) <= max_words:
        return text
    sought = answer.split()
    if len(sought) > max_words:
        text, words, sought = answer, list(re.finditer(r"\S+", answer)), []
    tail = max_words // _TAIL
    shown = [word[0] for word in (*words[: max_words - tail], *words[len(words) - tail :])]
    if not sought or _holds(shown[: max_words - tail], sought) or _holds(shown[max_words - tail :], sought):
        end = text[words[-tail].start() :] if tail else ""
    else:
        end, tail = answer.strip(), len(sought)
    start = text[: words[max_words - tail - 1].end()] if tail < max_words else ""
    return f"{start} … {end}".strip()


def _unmarked(line: str) -> tuple[str, bool]:
    """Return a line without the marks that make it a heading or all bold, and whether there were any."""
    bare = line
    for _ in range(_NESTED):
        text = bare.strip(" \t")
        if found := _HASHES.match(text):
            inner = _CLOSING_HASHES.sub("", text[found.end() :]).rstrip(" \t")
        elif found := _BOLD.match(bare):
            inner = (found[1] or found[2]).strip() + found[3]
        else:
            break
        if not inner.strip():
            break
        bare = inner
    return bare, bare != line


def _holds(words: list[str], sought: list[str]) -> bool:
    """Tell whether words follow each other somewhere, whatever punctuation is around."""
    return f" {_bare(sought)} " in f" {_bare(words)} "


def _bare(words: list[str]) -> str:
    return " ".join(" ".join(words).translate(_PUNCTUATION).casefold().split())


_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?\"'()[]*_`", " "))
