"""Settings, and the three stages by a language model, checked against what it was given (DotRAG, specification 8.2).

Names that cannot be shown to a model, such as with brackets or control tokens, are left to the templates.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnrag.common.files import digest
from gnnrag.datasets.kb import Part, Triple, state
from gnnrag.errors import ConfigError
from gnnrag.index_config import one_of
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.parsing import objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session
from gnnrag.textualise.templates import (
    Described,
    EntityTask,
    MarkupError,
    Related,
    RelationsTask,
    Written,
    appended_sentences,
    batches,
    bracketed_sentence,
    check_marked,
    escape,
    read_marked,
    template_article,
    template_description,
)
from gnnrag.types import Question


@dataclass
class SampleConfig:
    """Which entities get articles, and which questions come along."""

    entities: int | None = None  # null: all; an article tells the whole neighbourhood either way
    entities_by: str = one_of("uniform", "ball")  # ball: an entity and those around it, so that questions stay whole
    ball_degree: int = 100  # ball: what has more neighbours is taken, but nothing beyond it
    questions: int | None = None  # of each file; null: all whose anchor and answers have articles


@dataclass
class WriterConfig:
    """Who writes, and how often a model is asked again."""

    method: str = one_of("template", "prompted")
    tries: int = 5  # prompted: replies to an article, and requests for what it left out, before a template steps in
    batch: int = 25  # prompted: triples described in one call
    infer_type: bool = False  # prompted: the type comes from the article, not from the entity's roles
    temperature: float | None = None  # prompted; null: the backend's
    max_tokens: int = 2048  # prompted: of an article; descriptions get half


@dataclass
class TextualiseConfig:
    """Everything `gnnrag textualise` reads."""

    path: str = "../shared/data/metaqa"  # a folder with kb.txt, and perhaps questions
    out: str = ""  # the dataset that is written
    licence: str = ""  # of the knowledge base, for the record; empty: see data/README.md
    write: WriterConfig = field(default_factory=WriterConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    max_calls: int | None = None  # of this command; what is finished is kept
    seed: int = 0  # of the samples, and of the choice among templates
    concurrency: int = 16


def check_textualise(config: TextualiseConfig) -> None:
    """Refuse settings that cannot be. Raises ConfigError."""
    if not config.out:
        raise ConfigError("out is missing: give the folder to write, as in out=runs/metaqa-text")
    w, s = config.write, config.sample
    least = {
        "write.tries": w.tries, "write.batch": w.batch, "write.max_tokens": w.max_tokens,
        "sample.entities": s.entities, "sample.questions": s.questions, "sample.ball_degree": s.ball_degree,
        "concurrency": config.concurrency, "max_calls": config.max_calls,
    }  # fmt: skip
    for name, value in least.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value}: must be at least 1")


# Which entities get articles, and which questions go with them. Hashes choose, so that a seed is all there is.


def chosen_entities(triples: Sequence[Triple], config: SampleConfig, seed: int) -> frozenset[str]:
    """Return the entities that get articles. Raises ConfigError where there are not so many."""
    around: dict[str, dict[str, None]] = {}
    for head, _, tail in triples:
        around.setdefault(head, {})[tail] = None
        around.setdefault(tail, {})[head] = None
    if config.entities is None:
        return frozenset(around)
    if config.entities > len(around):
        raise ConfigError(f"sample.entities={config.entities}: the knowledge base has {len(around)}; null takes all")
    rank = {name: digest([seed, name]) for name in around}
    ordered = sorted(around, key=lambda name: rank[name])
    if config.entities_by == "uniform":
        return frozenset(ordered[: config.entities])
    taken: dict[str, None] = {}
    for start in ordered:  # a second ball where the first was all that hangs together
        waiting = deque([start])
        while waiting and len(taken) < config.entities:
            name = waiting.popleft()
            if name in taken:
                continue
            taken[name] = None
            if len(around[name]) <= config.ball_degree:
                waiting.extend(sorted((n for n in around[name] if n not in taken), key=lambda n: rank[n]))
    return frozenset(taken)


def chosen_questions(
    questions: Sequence[Question], entities: frozenset[str], passages: frozenset[str], count: int | None, seed: int
) -> list[Question]:
    """Return the questions whose anchor, answers and gold passages are there, or a sample of them, in file order."""
    whole = [q for q in questions if {*q.extra["nodes"], *_anchor(q)} <= entities and passages.issuperset(q.gold)]
    if count is None:
        return whole
    kept = set(sorted(range(len(whole)), key=lambda i: digest([seed, whole[i].id]))[:count])
    return [question for i, question in enumerate(whole) if i in kept]


def _anchor(question: Question) -> tuple[str, ...]:
    anchor = question.extra.get("anchor")
    return () if anchor is None else (anchor,)


# ------------------------------------------------------------------------------------------------------------ a model
UNSURE = "unsure"
# Flags of what a template had to do; those of an article are in the side table, too.
APPENDED, REPLACED, PLAIN, STATED = "template_sentence", "template_article", "template_description", "template_relation"


@dataclass
class _Prompters:
    article: Prompter
    more: Prompter
    entity: Prompter
    relations: Prompter


class PromptedWriter:
    """Asks a model for each stage, and again for what is missing; templates of `seed` do what the model does not."""

    version = 1

    def __init__(self, backend: Backend, config: WriterConfig, kinds: Sequence[str], seed: int = 0) -> None:
        self.config, self.kinds, self.seed, self._backend = config, (*kinds, UNSURE), seed, backend
        whole = PromptedConfig(temperature=config.temperature, max_tokens=config.max_tokens)
        part = PromptedConfig(temperature=config.temperature, max_tokens=max(1, config.max_tokens // 2))
        tries = config.tries
        self._ask = _Prompters(
            Prompter("article", backend, whole, tries=tries),
            Prompter("article", backend, part, "article_more", tries=1),
            Prompter("entity", backend, part, "entity_text", tries=tries),
            Prompter("relations", backend, whole, "relation_texts", tries=tries),
        )

    @property
    def identity(self) -> Mapping[str, Any]:
        """See `Writer`."""
        c, a = self.config, self._ask
        prompts = {p.prompt.name: p.prompt.digest for p in (a.article, a.more, a.entity, a.relations)}
        settings = [c.tries, c.batch, c.infer_type, c.temperature, c.max_tokens]
        return {"method": "prompted", "version": self.version, "seed": self.seed, "settings": settings,
                "prompts": prompts, "model": dict(self._backend.identity)}  # fmt: skip

    async def close(self) -> None:
        """See `Writer`."""
        await self._backend.close()

    async def article(self, task: Part, session: Session) -> Written:
        """See `Writer`. First the whole article, then a paragraph for each round of names that are still missing."""
        names = [name for name in task.neighbours if can_be_shown(name)]
        if not can_be_shown(task.name) or not names:
            return Written(template_article(task, self.seed), (REPLACED,))
        values = {"topic": task.name, "kind": task.type.replace("|", " and ") or "unknown", "facts": facts(task, names)}
        outcome = await self._ask.article.ask(session, values, lambda reply: read_article(reply, task))
        if outcome.value is None:
            return Written(template_article(task, self.seed), (REPLACED,))
        text = outcome.value
        for number in range(1, self.config.tries + 1):
            left = check_marked(text, task.name, task.neighbours)
            missing = [name for name in left if name in names]
            if not missing:
                break
            plain = notes_element(read_marked(text)[0])
            values = {"topic": task.name, "article": plain, "number": str(number), "facts": facts(task, missing)}
            more = await self._ask.more.ask(session, values, lambda reply: read_article(reply, task))
            longer = f"{text}\n\n{more.value or ''}"
            if len(check_marked(longer, task.name, task.neighbours)) < len(left):
                text = longer
        left = check_marked(text, task.name, task.neighbours)
        if not left:
            return Written(text)
        return Written(f"{text}\n\n{appended_sentences(task, left, self.seed)}", (APPENDED,))

    async def entity(self, task: EntityTask, session: Session) -> Described:
        """See `Writer`."""
        part, kinds = task.part, self.kinds
        if can_be_shown(part.name):
            values = {"kinds": ", ".join(kinds), "name": part.name, "article": notes_element(task.article)}
            known = (part.name, task.article, kinds)
            outcome = await self._ask.entity.ask(session, values, lambda reply: read_entity(reply, *known))
            if outcome.value is not None:
                kind, description = outcome.value
                return Described(kind if self.config.infer_type else part.type, description)
        return Described(part.type, template_description(part), (PLAIN,))

    async def relations(self, task: RelationsTask, session: Session) -> Related:
        """See `Writer`. A batch whose replies cannot be used is halved, down to single triples."""
        sentences: dict[Triple, str] = {}
        waiting = batches([t for t in task.triples if can_be_shown(t[0]) and can_be_shown(t[2])], self.config.batch)
        while waiting:
            batch = waiting.pop(0)
            rows = [f"{n}. {h} | {inline(r.replace('_', ' '))} | {t}" for n, (h, r, t) in enumerate(batch, start=1)]
            values = {"article": notes_element(task.article), "triples": notes_element("\n".join(rows))}
            outcome = await self._ask.relations.ask(session, values, lambda reply, b=batch: read_relations(reply, b))  # type: ignore[misc]
            if outcome.value is not None:
                sentences.update(zip(batch, outcome.value, strict=True))
            elif len(batch) > 1:
                waiting[:0] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
        texts = tuple(sentences.get(triple) or bracketed_sentence(triple) for triple in task.triples)
        return Related(texts, (STATED,) * (len(task.triples) - len(sentences)))


# What a model is shown of a knowledge base, and how its replies are read: strictly, and never trusted.

_NUMBER = re.compile(r"\d{3,}")  # years and the like; shorter ones count things
_BRACKETS = re.compile(r"[<>\[\]]")
_LONGEST = 1200  # characters of a description


def can_be_shown(name: str) -> bool:
    """Tell whether a name stands in a prompt, and between brackets, exactly as it is."""
    return inline(name) == name == escape(name) and f"\n{name}\n" in notes_element(name)


def facts(part: Part, names: Sequence[str]) -> str:
    """Return neighbours of a part with what is stated of each, as a prompt shows them."""
    said: dict[str, list[str]] = {name: [] for name in names}
    for fact in part.triples:
        other = fact[2] if fact[0] == part.name else fact[0]
        if other in said:
            said[other].append(inline(state(fact, fact[0])))
    return notes_element("\n".join(f"- {name}: {' '.join(statements)}" for name, statements in said.items()))


def read_article(reply: str, part: Part) -> str:
    """Return a marked text; names may be missing in it.

    Raises MalformedError for broken markup, no mark, or a mark or number not given (a fact from elsewhere).
    """
    text = strip_markup(strip_thinking(reply))
    try:
        missing = check_marked(text, part.name, part.neighbours)
        plain, _ = read_marked(text)
    except MarkupError as error:
        raise MalformedError(str(error)) from error
    if len(missing) == len(part.neighbours):
        raise MalformedError("no name of the list stands in square brackets")
    _refuse_numbers(plain, " ".join((part.name, *part.neighbours)))
    return re.sub(r"\n\s*\n+", "\n\n", text)


def read_entity(reply: str, name: str, article: str, kinds: Sequence[str]) -> tuple[str, str]:
    """Return type and description of a reply `{"type": "movie", "description": "..."}`.

    Raises MalformedError for another type, or a description that is empty, long, marked, nameless or with a new number.
    """
    for data in objects(strip_thinking(reply)):
        kind, text = data.get("type"), data.get("description")
        if not isinstance(kind, str) or not isinstance(text, str):
            continue
        text = " ".join(text.split())
        if kind not in kinds:
            raise MalformedError(f"type {kind[:80]!r} is not of the list")
        if name not in text or len(text) > _LONGEST:
            raise MalformedError("the description does not name the thing, or is too long")
        if _BRACKETS.search(text.replace(name, "")):
            raise MalformedError("the description has brackets")
        _refuse_numbers(text, f"{name} {article}")
        return kind, text
    raise MalformedError("no object with 'type' and 'description'")


def read_relations(reply: str, triples: Sequence[Triple]) -> list[str]:
    """Return the sentences of a reply `{"1": "[head] ... [tail].", ...}` in the order of their numbers.

    Raises MalformedError for other numbers than the triples', or marks that are not exactly both ends.
    """
    numbers = {str(number) for number in range(1, len(triples) + 1)}
    for data in objects(strip_thinking(reply)):
        rows = {str(number).strip(): text for number, text in data.items()}
        if rows.keys() != numbers:
            raise MalformedError(f"the numbers are not 1 to {len(triples)}")
        return [_sentence(rows[str(n)], triple) for n, triple in enumerate(triples, start=1)]
    raise MalformedError("no object")


def _sentence(text: object, triple: Triple) -> str:
    if not isinstance(text, str):
        raise MalformedError(f"{text!r:.80} is no sentence")
    line = " ".join(text.split())
    head, _, tail = triple
    try:
        _, mentions = read_marked(line)
    except MarkupError as error:
        raise MalformedError(str(error)) from error
    if {(mention.kind, mention.name) for mention in mentions} != {("neighbour", head), ("neighbour", tail)}:
        raise MalformedError(f"the sentence does not mark [{head}] and [{tail}], and nothing else")
    return line


def _refuse_numbers(text: str, given: str) -> None:
    if strange := sorted(set(_NUMBER.findall(text)) - set(_NUMBER.findall(given))):
        raise MalformedError(f"numbers that were not given: {', '.join(strange)[:80]}")
