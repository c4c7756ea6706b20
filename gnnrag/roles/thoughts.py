"""Thoughts: the next queries after a round (BDTR's fast and slow thought), from a model or from rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal

from gnnrag.errors import ConfigError
from gnnrag.llm.base import Message
from gnnrag.parts import part, set_up
from gnnrag.prompts import cached_prompt
from gnnrag.prompts.untrusted import inline, passage_elements
from gnnrag.roles.base import ResultT, Role, TaskT, Thoughts, ThoughtsTask
from gnnrag.roles.bridges import BridgingRole
from gnnrag.roles.parsing import LINE_START, clean_line, json_objects, plain
from gnnrag.roles.prompting import MalformedError, PromptedPart, Prompter
from gnnrag.session import Session
from gnnrag.text.normalise import words

_LABEL = re.compile(
    r"^[^\w\n]*+(?:\d+[.)][ \t]*)?(fast|slow)[ \t_-]*thought[^\w\n]*[:\-]\s*", re.IGNORECASE | re.MULTILINE
)
_ANSWER = re.compile(
    r"^\W*(?:(?:so|thus|hence|therefore)\W+)?(?:the\s+)?(?:final\s+)?answer\s*(?:is\b|:)", re.IGNORECASE
)
_NOTHING = re.compile(r"^\W*nothing (?:else )?(?:is )?missing\W*$", re.IGNORECASE)
_CHAIN = re.compile(rf"{LINE_START}()\W*+(?:reasoning )?chain\W*:[ \t]*", re.IGNORECASE | re.MULTILINE)
_BLANK = re.compile(r"\n[ \t]*\n")
KINDS = ("fast", "slow")


@part("role", "thoughts.prompted")
class PromptedThoughts(PromptedPart[ThoughtsTask, Thoughts]):
    """Asks for a fast and a slow thought. If no reply parses, it gives neither, and the flag `thought_failed`.

    `joint` asks for both in one call. `separate` makes two calls and shows the fast thought to the second; setting
    `prompt` is then a ConfigError.
    """

    max_tokens: int = 128
    chain_tokens: int = 256  # added to max_tokens when the same call asks for the chain
    mode: Literal["joint", "separate"] = "joint"

    def setup(self) -> None:
        if self.mode == "separate" and self.prompt:
            raise ConfigError(f"thoughts.prompt={self.prompt!r} works with mode=joint only")
        self._prompter = cache(self._made)
        names = ("thoughts",) if self.mode == "joint" else ("thoughts_fast", "thoughts_slow")
        self.prompters = tuple(map(self._prompter, names))

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        async def ask(
            prompt: str, may_stop: bool, with_chain: bool, kinds: Sequence[str] = KINDS, **more: str
        ) -> Thoughts:
            prompter = self._prompter(prompt, *_options(may_stop, with_chain))
            parse = partial(parse_thoughts, may_stop=may_stop, with_chain=with_chain, kinds=kinds)
            return (await prompter.ask(session, {**_values(task), **more}, parse)).value or Thoughts()

        if self.mode == "joint":
            thoughts = await ask("thoughts", task.may_stop, task.with_chain)
        else:
            thoughts = await ask("thoughts_fast", task.may_stop, False, ("fast",))
            if not thoughts.sufficient:
                fast = inline(thoughts.fast or "(none)")
                slow = await ask("thoughts_slow", False, task.with_chain, ("slow",), fast=fast)
                flags = thoughts.flags or slow.flags
                thoughts = replace(thoughts, slow=slow.slow, chain=slow.chain, flags=flags)
        if thoughts.fast or thoughts.slow or thoughts.sufficient:
            return thoughts
        return Thoughts(flags=("thought_failed",))

    def _made(self, prompt: str, *options: str) -> Prompter:
        tokens = self.max_tokens + self.chain_tokens * ("chain" in options)
        return self.prompter(prompt, *options, max_tokens=tokens)


def thoughts_chat(task: ThoughtsTask, thoughts: Thoughts, prompt: str = "") -> tuple[Message, ...]:
    """Return the chat of the joint prompt (or of the one named) for a task, with a reply that gives these thoughts."""
    lines = [f"{label} Thought: {text}" for label, text in (("Fast", thoughts.fast), ("Slow", thoughts.slow)) if text]
    lines += ["Chain:", thoughts.chain] if task.with_chain and thoughts.chain else []
    asked = cached_prompt(prompt or "thoughts", *_options(task.may_stop, task.with_chain)).render(**_values(task))
    return (*asked, Message("assistant", "\n".join(lines) if thoughts.fast or thoughts.slow else "Nothing missing"))


def _values(task: ThoughtsTask) -> dict[str, str]:
    earlier = "\n".join(f"- {inline(q)}" for q in task.earlier) or "(none)"
    return {"passages": passage_elements(task.passages), "earlier": earlier, "question": inline(task.question.text)}


def _options(may_stop: bool, with_chain: bool) -> list[str]:
    return [*["stop"] * may_stop, *["chain"] * with_chain]


def parse_thoughts(
    text: str, may_stop: bool = False, with_chain: bool = False, kinds: Sequence[str] = KINDS
) -> Thoughts:
    """Parse a reply: labelled lines, a JSON object, or a line for each of `kinds`; MalformedError without a thought.

    With `with_chain`, the chain is what follows `Chain:`.
    """
    text, chain = plain(text), None
    if label := _CHAIN.search(text) if with_chain else None:
        chain = text[label.end() :].strip() or None
        text = text[: label.start(1)].strip()
    if may_stop and _NOTHING.match(text):
        return Thoughts(sufficient=True, chain=chain)
    lines, pair = [line for line in text.splitlines() if line.strip()], _json_pair(text)
    # JSON goes first: its keys are the labels, so its lines would otherwise match as labelled lines.
    texts = (pair if text.startswith("{") else {}) or _labelled(text) or pair
    if not texts and 1 <= len(lines) <= len(kinds) and text[0] not in "{[":
        texts = dict(zip(kinds, lines, strict=False))
    fast, slow = (clean_line(texts.get(kind, "")) if kind in kinds else None for kind in KINDS)
    if fast is None and slow is None:
        raise MalformedError(f"no {' and no '.join(kinds)} thought")
    flags = ("answer_leak",) if any(t and _ANSWER.match(t) for t in (fast, slow)) else ()  # an answer, not a query
    return Thoughts(fast, slow, chain=chain, flags=flags)


def _labelled(text: str) -> dict[str, str]:
    """Return the labelled values. A value ends at the next label or a blank line; the first of each kind counts."""
    _, *pieces = _LABEL.split(text)
    texts: dict[str, str] = {}
    for kind, value in zip(pieces[::2], pieces[1::2], strict=True):
        texts.setdefault(kind.lower(), _BLANK.split(value, maxsplit=1)[0])
    return texts


def _json_pair(text: str) -> dict[str, str]:
    for data in json_objects(text):
        keys = {re.sub(r"[\s_-]*thought$", "", str(k).strip().lower()): v for k, v in data.items()}
        if pair := {k: keys[k] for k in ("fast", "slow") if isinstance(keys.get(k), str)}:
            return pair
    return {}


@part("role", "thoughts.offline")
class OfflineThoughts(BridgingRole[ThoughtsTask, Thoughts]):
    """Writes queries for passages that the evidence lacks, by rules.

    The missing passages are those whose titles the question names, then those that bridges from them lead to; names
    already asked for are skipped. The open part of a question is its words that name nothing. Fast: first missing name,
    and the open part's words that no shown passage contains. Slow: the whole open part, and the next missing name.
    """

    max_bridges: int = 2  # bridges that the evidence should hold, over all anchors
    frontier: int = 2  # first pool passages to search for bridges if the question names no title
    max_words: int = 12  # words of the open part in the fast query, at most

    is_guess = True

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        return self.think(task)

    def think(self, task: ThoughtsTask) -> Thoughts:
        """Return the next two queries, or neither (`nothing_missing`)."""
        question = self.finder.read(task.question.text)
        shown = [self.index.position[p.id] for p in task.passages]
        anchors = [a.passage for a in question.anchors]
        wanted = self.finder.bridges(question, anchors or shown[: self.frontier])[: self.max_bridges]
        missing = [a.name for a in question.anchors if a.passage not in shown]
        missing += [b.name for b in wanted if b.passage not in shown]
        asked = " | ".join(task.earlier).casefold()
        fresh = [name for name in missing if name.casefold() not in asked]
        if not fresh:
            return Thoughts(sufficient=bool(question.anchors), flags=("nothing_missing",))
        seen = {w for p in task.passages for w in words(p.content)}
        uncovered = [w for w in words(question.open_part) if w not in seen][: self.max_words]
        fast = " ".join([fresh[0], *uncovered])
        follow = fresh[1] if len(fresh) > 1 else fresh[0]
        slow = f"{question.open_part} {follow}"
        return Thoughts(fast, slow if slow.casefold() != fast.casefold() else None)


class ThinkingRole(Role[TaskT, ResultT]):
    """Base of offline roles that use `OfflineThoughts` to find which passages are missing."""

    reads = OfflineThoughts.reads

    def setup(self) -> None:
        self.thoughts = set_up(OfflineThoughts(), index=self.index)
