"""Sample paths, have questions written about them, and write both down: what `gnnrag make-questions` does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnrag import __version__
from gnnrag.common.files import (
    Journal,
    digest,
    exclusive_lock,
    file_digest,
    read_object,
    remove,
    write_json,
    write_jsonl,
)
from gnnrag.common.records import QUESTIONS, interpreting, refuse_other, text
from gnnrag.common.yaml_config import recorded
from gnnrag.config import Choice, EvaluateConfig, RoleConfig, build_settings, to_plain
from gnnrag.datasets.base import Dataset, fingerprint, load_passages
from gnnrag.errors import ConfigError, GnnragError, LLMError
from gnnrag.index.build import Progress
from gnnrag.index.index import Index
from gnnrag.index_config import one_of
from gnnrag.metrics.answer import exact_match, f1
from gnnrag.questions.authors import Author, PromptedAuthor, Quota, TemplateAuthor, Written, is_leaking
from gnnrag.questions.paths import PathSampler, PathView, SamplingRules
from gnnrag.registry import METHODS, RETRIEVERS, resolve
from gnnrag.roles.base import ReaderTask
from gnnrag.roles.prompting import PromptedConfig
from gnnrag.roles.registry import Roles
from gnnrag.run.pipeline import chunking, open_shared_index
from gnnrag.session import Session
from gnnrag.types import Question

MIN_HOPS, MAX_HOPS = 2, 4


@dataclass
class QuestionsConfig:
    """What is made; the numbers are the paper's (DotRAG, section 8.5 of its specification) where it states them."""

    out: str = ""  # folder that is written
    method: str = one_of("template", "prompted")
    paths: int = 20
    per_path: int = 5  # questions about each
    hops: int = 3
    seed: int = 0
    min_degree: int = 2  # neighbours that an entity of a path has at least
    percentile: float = 95.0  # of the degrees; an entity above it is a hub
    min_passages: int = 2  # distinct gold passages of a question: one that a single passage answers is not multi-hop
    typed: bool = True  # entities have a known type, or are what a passage is about
    similarity: float = 0.95  # cosine that two questions of a path stay below
    necessity: bool = False  # leave out what the reader answers from the passages of E1 alone
    necessity_passages: int = 5
    attempts: int = 50_000  # walks that are tried
    fresh: bool = False  # throw away what `out` holds of an earlier run


def _asked() -> PromptedConfig:
    return PromptedConfig(max_tokens=1024)


@dataclass
class MakeQuestionsConfig(EvaluateConfig):
    """Everything `make_questions.py` reads; of a run's settings those of data, index, model and roles."""

    make: QuestionsConfig = field(default_factory=QuestionsConfig)
    ask: PromptedConfig = field(default_factory=_asked)  # how the model is asked, with make.method=prompted


def check_questions(config: QuestionsConfig) -> None:
    """Raise ConfigError where a setting is none of those allowed."""
    if not config.out:
        raise ConfigError("make.out is not given: the folder that is written, such as make.out=data/made/musique-3hop")
    if not MIN_HOPS <= config.hops <= MAX_HOPS:
        raise ConfigError(f"make.hops={config.hops}: must lie between {MIN_HOPS} and {MAX_HOPS}")
    for name in ("paths", "per_path", "min_degree", "min_passages", "attempts", "necessity_passages"):
        if getattr(config, name) < 1:
            raise ConfigError(f"make.{name}={getattr(config, name)}: must be at least 1")
    if not 0.0 < config.similarity <= 1.0:
        raise ConfigError(f"make.similarity={config.similarity:g}: must lie above 0 and be at most 1")
    if not 0.0 < config.percentile <= 100.0:
        raise ConfigError(f"make.percentile={config.percentile:g}: must lie above 0 and be at most 100")


# ------------------------------------------------------------------------------------------------------------- making
SPLIT = "generated"
ANEW = "give another folder, or make.fresh=true to make it anew"
JOURNAL, SOURCE, LOCK = "paths.jsonl", "SOURCE.json", ".lock"
_ANSWERED = 0.8  # token F1 from which the reader's answer counts as the right one


@dataclass(frozen=True)
class Observer:
    """Who is notified of progress."""

    on_index: Progress = lambda stage, done, total: None
    on_path: Callable[[int], None] = lambda accepted: None
    on_note: Callable[[str], None] = lambda note: None


def make_questions(config: MakeQuestionsConfig, observer: Observer | None = None) -> dict[str, Any]:
    """Write `questions.generated.jsonl` and `SOURCE.json` into `make.out`; return what the latter holds.

    The same command continues an interrupted run from `paths.jsonl`. Seed, settings and index decide every path, and
    with templates every question. Raises ConfigError for bad settings or a folder made with others, GnnragError where
    no path could be used, LLMError where the model cannot be reached (finished paths are kept).
    """
    observer, own = observer or Observer(), config.make
    check_questions(own)
    out = Path(own.out)
    _refuse_taken(out)
    data = load_passages(config.data.path, chunking(config.data))
    plain = replace(config, method=_part("method", "single", METHODS), retriever=_part("retriever", "bm25", RETRIEVERS))
    roles_asked = ["reader"] if own.necessity else []
    index = open_shared_index([plain], data.name, data.passages, observer.on_index, roles_asked, ("knowledge",))
    roles = Roles(index, config.roles, config.llm, config.llm_cache)
    out.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(out / LOCK, str(out)):
        maker = _Maker(config, data, index, roles, observer)
        return asyncio.run(maker.run(out))


def _refuse_taken(out: Path) -> None:
    """Raise ConfigError where a folder holds anything but what an earlier call left, `make.fresh=true` or not."""
    refuse_other(out, QUESTIONS)
    taken = sorted(path.name for path in out.iterdir() if path.name != LOCK) if out.is_dir() else []
    if taken and not QUESTIONS.is_one(out, {}):
        raise ConfigError(f"make.out={out} holds {taken[0]}, of another origin; give another make.out")


def _part(where: str, name: str, table: dict[str, str]) -> Choice:
    return Choice(name, build_settings(resolve(where, name, table), {}, where))


class _Maker:
    def __init__(
        self, config: MakeQuestionsConfig, data: Dataset, index: Index, roles: Roles, observer: Observer
    ) -> None:
        self.config, self.own, self.observer = config, config.make, observer
        self.data, self.index, self.roles = data, index, roles
        graph, own = index.knowledge, config.make
        rules = SamplingRules(own.hops, own.min_degree, own.percentile, own.typed, worded=own.method == "template")
        self.sampler = PathSampler(graph, rules, (passage.title for passage in data.passages))
        self.author = self._author()
        self._prefix = f"{data.name}-{own.hops}hop"  # of the ids
        self.counts: Counter[str] = Counter()
        self.usage = Session("make-questions")  # of all paths that were looked at, those of earlier runs included

    async def run(self, out: Path) -> dict[str, Any]:
        try:
            origin = self._origin()
            journal = self._journal(out, origin)
            try:
                accepted = await self._paths(journal)
            finally:
                journal.close()
        finally:
            await self.roles.close()
        if not accepted:
            raise GnnragError(f"{self._shortage(0)}; {self._why()}")
        if len(accepted) < self.own.paths:
            self.observer.on_note(f"{self._shortage(len(accepted))}; {self._why()}")
        rows = [
            view.row(f"{self._prefix}-{i:03d}-{n}", text, self.author.parts(view), origin["generator"])
            for i, (view, questions) in enumerate(accepted)
            for n, text in enumerate(questions, start=1)
        ]
        file = out / f"questions.{SPLIT}.jsonl"
        write_jsonl(file, rows)
        about = {
            **origin,
            "questions": len(rows),
            "paths": len(accepted),
            "left_out": dict(sorted(self.counts.items())),
            "usage": self.usage.usage(),
            "files": {file.name: file_digest(file)},
        }
        write_json(out / SOURCE, about)
        return about

    async def _paths(self, journal: Journal) -> list[tuple[PathView, list[str]]]:
        with interpreting(journal.path, ANEW):
            known = {tuple(row["nodes"]): row for row in map(_checked_row, journal.rows[1:])}
        tried: set[tuple[int, ...]] = set()
        ends: set[int] = set()
        accepted: list[tuple[PathView, list[str]]] = []
        for path in self.sampler.draw(self.own.seed, self.own.attempts):
            if len(accepted) == self.own.paths:
                break
            if path.nodes in tried or path.nodes[-1] in ends:
                continue
            tried.add(path.nodes)
            view = PathView(self.index, path)
            if is_leaking(view.names):
                self.counts["E1 says the answer"] += 1
                continue
            if len({view.gold(step) for step in path.steps}) < self.own.min_passages:
                self.counts["too few passages"] += 1
                continue
            row = known.get(path.nodes)
            if row is None:
                session = Session("path")
                written = await self._write(view, session)
                row = {"nodes": list(path.nodes), "path": [n[0] for n in view.names.names], **_plain(written)}
                row["usage"] = session.usage()
                journal.append(row)
            _add_usage(self.usage, row.get("usage", {}))
            if row["questions"]:
                ends.add(path.nodes[-1])
                accepted.append((view, row["questions"]))
                self.observer.on_path(len(accepted))
            else:
                self.counts[row.get("reason") or "unknown"] += 1
        return accepted

    async def _write(self, view: PathView, session: Session) -> Written:
        """Return the questions of a path. Raises LLMError where a call failed for good: the path is not to blame."""
        written = await self.author(view, session)
        if self.own.necessity:
            for text in written.questions:
                if await self._is_answered_at_once(text, view, session):
                    why = f"one step is enough: the reader answers {text!r} from passages of E1 alone"
                    return Written((), why, "one step is enough")
        return written

    async def _is_answered_at_once(self, text: str, view: PathView, session: Session) -> bool:
        task = ReaderTask(Question("check", text), view.start_passages(self.own.necessity_passages))
        answer = await self.roles["reader"](task, session)
        session.flag("reader", *answer.flags)
        if problem := session.failed_calls():  # else an unanswered question would count as one that needs its hops
            raise LLMError(problem)
        gold = view.names.names[-1]
        return exact_match(answer.text, gold) == 1.0 or f1(answer.text, gold) >= _ANSWERED

    def _author(self) -> Author:
        quota = Quota(self.own.per_path, self.own.similarity)
        if self.own.method == "template":
            return TemplateAuthor(quota, self.index.embedder.encode)
        return PromptedAuthor(self.roles.backend(RoleConfig()), self.config.ask, quota, self.index.embedder.encode)

    def _origin(self) -> dict[str, Any]:
        prompters = self.author.prompters
        generator: dict[str, Any] = {"method": self.own.method, "seed": self.own.seed, "gnnrag": __version__}
        generator["embedder"] = self.index.embedder.identity  # says which questions are too much alike
        if prompters:
            generator |= {"llm": dict(prompters[0].backend.identity), "sampling": to_plain(self.config.ask)}
            generator |= {"prompts": {p.prompt.name: p.prompt.digest for p in prompters}}
        if self.own.necessity:
            _ = self.roles["reader"]  # built now: the record tells of built ones only
            roles: Any = self.config.roles
            asked = {"options": dict(roles.reader.options), "prompts": self.roles.prompts.get("reader")}
            generator["reader"] = self.roles.record["reader"] | asked
        settings = {k: v for k, v in to_plain(self.own).items() if k not in ("out", "fresh", "paths")}
        origin = {
            "set": self.data.name,
            "data": self.config.data.path,
            "passages": fingerprint(self.data.passages),
            "graph": self.index.fingerprint["knowledge"],
            "generator": generator,
            "settings": settings,
        }
        return recorded(origin)  # type: ignore[no-any-return]

    def _journal(self, out: Path, origin: dict[str, Any]) -> Journal:
        path, mark = out / JOURNAL, {"made with": digest({k: v for k, v in origin.items() if k != "data"})}
        if self.own.fresh:
            remove(path, out)  # the questions stay until there are new ones
        elif not path.exists() and any((out / name).exists() for name in (f"questions.{SPLIT}.jsonl", SOURCE)):
            raise ConfigError(
                f"make.out={out} holds questions of another origin; give another folder, or make.fresh=true"
            )
        journal = Journal(path)
        if journal.rows and journal.rows[0] != mark:
            journal.close()
            raise ConfigError(
                f"make.out={out} was made with other settings, another model or another index; give another folder, or "
                "make.fresh=true to make it anew"
            )
        made = read_object(out / SOURCE)  # what a killed make.fresh=true was to replace counts for nothing
        is_same = mark["made with"] == digest({k: made.get(k) for k in origin if k != "data"})
        held = made.get("paths", 0)
        if is_same and not self.own.fresh and isinstance(held, int) and held > self.own.paths:
            journal.close()
            raise ConfigError(
                f"make.out={out} holds questions of {held} paths, more than make.paths={self.own.paths}; give another "
                "folder, or make.fresh=true to make it anew with fewer"
            )
        if not journal.rows:
            journal.append(mark)
            journal.rows.append(mark)
        return journal

    def _shortage(self, found: int) -> str:
        return f"{found} of {self.own.paths} paths were found in {self.own.attempts:,} walks"

    def _why(self) -> str:
        reasons = ", ".join(f"{why}: {n}" for why, n in self.counts.most_common(3))
        hubs = f"entities with {self.own.min_degree} to {self.sampler.max_degree:g} neighbours"
        return f"taken are {hubs}; left out: {reasons or 'none'}. make.percentile=99 or make.typed=false takes in more"


def _plain(written: Written) -> dict[str, Any]:
    return {"questions": list(written.questions), "why": written.why, "reason": written.reason}


def _checked_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the journal. Raises ValueError, KeyError or the like where it is none that is written here."""
    if not all(type(node) is int for node in row["nodes"]) or not all(map(text, row["questions"])):
        raise ValueError("no path and its questions")
    text(row.get("reason") or "")
    _add_usage(Session("check"), row.get("usage", {}))
    return row


def _add_usage(session: Session, usage: Mapping[str, Any]) -> None:
    for role, counts in usage.get("roles", {}).items():
        session.by_role[role].update(counts)
    session.counts.update(usage.get("flags", {}))
    session.counts["retriever_calls"] += usage.get("retriever_calls", 0)
    session.cost += usage.get("cost", 0.0)
