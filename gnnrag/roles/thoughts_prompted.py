"""Dual thoughts from a language model (BDTR, arXiv 2509.25530, section 3.1; the wording is ours)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from gnnrag.errors import ConfigError
from gnnrag.llm.base import Backend, Message
from gnnrag.prompts.load import cached_prompt
from gnnrag.prompts.untrusted import inline, passage_elements
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.hollow import has_fact
from gnnrag.roles.parsing import LINE_START, clean_line, json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

_LABEL = re.compile(r"^\W*(?:\d+[.)]\s*)?(fast|slow)[\s_-]*thought\W*[:\-]\s*(.*)$", re.IGNORECASE)
_ANSWER = re.compile(
    r"^\W*(?:(?:so|thus|hence|therefore)\W+)?(?:the\s+)?(?:final\s+)?answer\s*(?:is\b|:)", re.IGNORECASE
)
_NOTHING = re.compile(r"^\W*nothing (?:else )?(?:is )?missing\W*$", re.IGNORECASE)
_CHAIN = re.compile(rf"{LINE_START}()\W*+(?:reasoning )?chain\W*:[ \t]*", re.IGNORECASE | re.MULTILINE)


@dataclass
class PromptedThoughtsConfig(PromptedConfig):
    """`joint` asks for both thoughts in one call; `separate` asks twice and shows the fast thought to the second."""

    max_tokens: int = 128
    chain_tokens: int = 256  # on top, when the chain is asked for in the same call
    mode: Literal["joint", "separate"] = "joint"


class PromptedThoughts:
    """Asks for a fast and a slow thought. No reply at all, or none that parses, gives neither (`thought_failed`).

    Args:
        backend: the language model.
        config: settings; `prompt` is for joint mode.

    Raises:
        ConfigError: a prompt of its own in separate mode.
    """

    config_class = PromptedThoughtsConfig

    def __init__(self, backend: Backend, config: PromptedThoughtsConfig | None = None) -> None:
        config = config or PromptedThoughtsConfig()
        if config.mode == "separate" and config.prompt:
            raise ConfigError(f"thoughts.prompt={config.prompt!r} works with mode=joint only")
        names = ("thoughts",) if config.mode == "joint" else ("thoughts_fast", "thoughts_slow")
        self.prompters = tuple(Prompter("thoughts", backend, config, name) for name in names)
        self._variants: dict[tuple[str, ...], Prompter] = {(n,): p for n, p in zip(names, self.prompters, strict=True)}
        self.config = config

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Ask for the two next queries."""
        if self.config.mode == "joint":
            outcome = await self._prompter("thoughts", *_options(task)).ask(
                session, _values(task), lambda text: parse_thoughts(text, task.may_stop, task.with_chain)
            )
            return outcome.value or Thoughts(flags=("thought_failed",))
        return await self._separate(task, _values(task), session)

    async def _separate(self, task: ThoughtsTask, values: dict[str, str], session: Session) -> Thoughts:
        """Ask for the fast thought, then for the slow one; either may be missing."""
        first = await self._prompter("thoughts_fast", *["stop"] * task.may_stop).ask(
            session, values, lambda text: parse_thought(text, "fast", task.may_stop)
        )
        if first.value and first.value.sufficient:
            return first.value
        fast = first.value.fast if first.value else None
        second = await self._prompter("thoughts_slow", *["chain"] * task.with_chain).ask(
            session,
            {**values, "fast": inline(fast or "(none)")},
            lambda text: parse_thought(text, "slow", with_chain=task.with_chain),
        )
        slow, chain = (second.value.slow, second.value.chain) if second.value else (None, None)
        flags = _flags(fast, slow) if fast or slow else ("thought_failed",)
        return Thoughts(fast, slow, chain=chain, flags=flags)

    def _prompter(self, *key: str) -> Prompter:
        """Return the prompter of a prompt with some of its options, made when a task first wants them."""
        if key not in self._variants:
            name, *options = key
            config = self.config
            if "chain" in options:
                config = replace(config, max_tokens=config.max_tokens + config.chain_tokens)
            self._variants[key] = Prompter("thoughts", self.prompters[0].backend, config, name, options)
        return self._variants[key]


def thoughts_chat(task: ThoughtsTask, thoughts: Thoughts, prompt: str = "") -> tuple[Message, ...]:
    """Return the joint prompt (or another, by its name) for a task, and the reply that gives these thoughts."""
    lines = [f"{label} Thought: {text}" for label, text in (("Fast", thoughts.fast), ("Slow", thoughts.slow)) if text]
    lines += ["Chain:", thoughts.chain] if task.with_chain and thoughts.chain else []
    asked = cached_prompt(prompt or "thoughts", *_options(task)).render(**_values(task))
    return (*asked, Message("assistant", "\n".join(lines) if thoughts.fast or thoughts.slow else "Nothing missing"))


def _values(task: ThoughtsTask) -> dict[str, str]:
    earlier = "\n".join(f"- {inline(q)}" for q in task.earlier) or "(none)"
    return {"passages": passage_elements(task.passages), "earlier": earlier, "question": inline(task.question.text)}


def _options(task: ThoughtsTask) -> list[str]:
    return [*["stop"] * task.may_stop, *["chain"] * task.with_chain]


def parse_thoughts(text: str, may_stop: bool = False, with_chain: bool = False) -> Thoughts:
    """Parse a reply to the joint prompt: labelled lines, a JSON object, two lines, or one line.

    Args:
        text: the reply.
        may_stop: it was allowed to say that nothing is missing.
        with_chain: it was asked for the chain as well.

    Raises:
        MalformedError: neither thought is there.
    """
    text, chain = _split(text, with_chain)
    if may_stop and _NOTHING.match(text):
        return Thoughts(sufficient=True, chain=chain)
    lines, pair = [line for line in text.splitlines() if line.strip()], _json_pair(text)
    # A reply that is JSON holds the labels as keys, which would pass for labelled lines.
    found = (pair if text.startswith("{") else {}) or _labelled(text) or pair
    if not found and 1 <= len(lines) <= 2 and text[0] not in "{[":
        found = dict(zip(("fast", "slow"), lines, strict=False))
    fast, slow = clean_line(found.get("fast", "")), clean_line(found.get("slow", ""))
    if fast is None and slow is None:
        raise MalformedError("neither a fast nor a slow thought")
    return Thoughts(fast, slow, chain=chain, flags=_flags(fast, slow))


def parse_thought(
    text: str, kind: Literal["fast", "slow"], may_stop: bool = False, with_chain: bool = False
) -> Thoughts:
    """Parse a reply to one of the separate prompts: its label, a JSON object, or one line.

    Args:
        text: the reply.
        kind: which of the two was asked for.
        may_stop: it was allowed to say that nothing is missing.
        with_chain: it was asked for the chain as well.

    Raises:
        MalformedError: no thought, or several lines without a label.
    """
    text, chain = _split(text, with_chain)
    if may_stop and _NOTHING.match(text):
        return Thoughts(sufficient=True, chain=chain)
    found = (_labelled(text) or _json_pair(text)).get(kind)
    if found is None and len(text.splitlines()) == 1:
        found = text
    if (thought := clean_line(found or "")) is None:
        raise MalformedError(f"no {kind} thought")
    return Thoughts(thought, chain=chain) if kind == "fast" else Thoughts(slow=thought, chain=chain)


def _split(text: str, with_chain: bool) -> tuple[str, str | None]:
    """Return the tidied reply, and the chain below the line `Chain:` if one was asked for and states a fact."""
    text = strip_markup(strip_thinking(text))
    if not (label := _CHAIN.search(text) if with_chain else None):
        return text, None
    return text[: label.start(1)].strip(), chain if has_fact(chain := text[label.end() :].strip()) else None


def _labelled(text: str) -> dict[str, str]:
    """Return the labelled values; one runs on until the next label or a blank line, the first of a kind counts."""
    found: dict[str, str] = {}
    current: str | None = None
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label:
            kind = label[1].lower()
            current = kind if kind not in found else None
            if current:
                found[current] = label[2]
        elif not line.strip():
            # A blank line between a label and its value does not end a value that has not begun.
            current = current if current and not found[current].strip() else None
        elif current and len(found[current]) < 4000:  # far more than `clean_line` keeps
            found[current] += f" {line}"
    return found


def _json_pair(text: str) -> dict[str, str]:
    """Return fast and slow from the first JSON object that has either."""
    for data in json_objects(text):
        keys = {re.sub(r"[\s_-]*thought$", "", str(k).strip().lower()): v for k, v in data.items()}
        if pair := {k: keys[k] for k in ("fast", "slow") if isinstance(keys.get(k), str)}:
            return pair
    return {}


def _flags(*thoughts: str | None) -> tuple[str, ...]:
    """Flag thoughts that state an answer instead of asking."""
    return ("answer_leak",) if any(t and _ANSWER.match(t) for t in thoughts) else ()
