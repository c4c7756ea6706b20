"""Questions about a path without a model: descriptions put into one another, from E1 to the last relation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gnnrag.questions.sampling import GraphPath, Step
from gnnrag.questions.wording import THING, Wording, noun_of

# "the film that X wrote wrote": a clause that ends with its verb, inside another of that kind.
_VERB = r"(\w+ed|wrote|made|acts|is|stars)"
_TWICE = re.compile(rf"\b(?:that|who|which|where)\b[^,:.?]*\b{_VERB} {_VERB}\b")
_OTHER = (("Which ", "Which other "), ("Who ", "Who else "), ("Whom ", "Whom else "), ("Where ", "Where else "))


class Telling:
    """A path in words.

    Args:
        names: display names of the graph's entities.
        types: their types, joined by `|`.
        path: positions; every step has a wording.

    Raises:
        ValueError: a step has none.
    """

    def __init__(self, names: Sequence[str], types: Sequence[str], path: GraphPath) -> None:
        self._names, self._types, self._path = names, types, path
        self._nouns: dict[int, str] = {}
        for step in path.steps:  # an entity of unknown type is called what its relations say of it
            wording = _wording(step)
            ends = (step.source, step.target) if step.is_forward else (step.target, step.source)
            for node, noun in zip(ends, (wording.head_noun, wording.tail_noun), strict=True):
                if noun != THING:
                    self._nouns.setdefault(node, noun_of(types[node], noun))

    @property
    def is_vague(self) -> bool:
        """Whether nothing is known of what one of the entities is: "the thing by which the thing was claimed"."""
        steps = self._path.steps
        return THING in (self._noun_before(steps[0]), *(self._noun(step) for step in steps))

    def questions(self) -> list[str]:
        """Return questions about the path, the most natural first; all have the same answer."""
        start, last, between = self._names[self._path.nodes[0]], self._path.steps[-1], self._path.steps[:-1]
        noun, what = self._noun_before(last), "Who" if self._noun(last) == "person" else "What"
        known = f"this {noun}" if between else start
        hops = [self._described(step, self._known(step, i, start), i) for i, step in enumerate(between)]
        turned = [self._described(step, self._known(step, i, ""), i + 1) for i, step in enumerate(between)]
        one, two = self._nested(between, start, 0), self._nested(between, start, 1)
        asked, plain = self._ask(last, known), self._described(last, one, 0)
        found = [self._ask(last, one), f"{what} is {self._described(last, two, 1)}?"]
        if between:
            found += [
                f"Consider {', and then '.join(hops)}. {asked}",
                f"Starting from {start}, find {', then '.join(turned)}: "
                f"{what.lower()} is {self._described(last, known, 0)}?",
                f"I am thinking of {two}. {asked}",
                f"{what} is {self._described(last, f'a certain {noun}', 0)}, if that {noun} is {one}?",
            ]
        found.append(f"Can you answer this for me: {what.lower()} is {plain}?")
        if not between:
            found.append(f"About {start}: {what.lower()} is {plain}?")
        return [text for text in dict.fromkeys(found) if not _TWICE.search(text)]

    def parts(self) -> list[str]:
        """Return a question for each step, with `#k` for the answer of step k."""
        steps = enumerate(self._path.steps)
        return [self._ask(step, f"#{i}" if i else self._names[step.source]) for i, step in steps]

    def _ask(self, step: Step, known: str) -> str:
        """Return the question for what a step leads to from something known."""
        wording = _wording(step)
        text = (wording.ask_tail if step.is_forward else wording.ask_head).format(x=known, k=self._noun(step))
        if step.is_other:
            for plain, other in _OTHER:
                if text.startswith(plain):
                    return other + text[len(plain) :]
        return text

    def _nested(self, steps: Sequence[Step], known: str, variant: int) -> str:
        for i, step in enumerate(steps):
            known = self._described(step, known, variant + i)
        return known

    def _described(self, step: Step, known: str, variant: int) -> str:
        """Return a noun phrase for what a step leads to; of the wordings another one where two verbs would meet."""
        wording = _wording(step)
        phrases = wording.tail if step.is_forward else wording.head
        turned = [phrases[(variant + i) % len(phrases)] for i in range(len(phrases))]
        texts = [phrase.format(x=known, k=self._noun(step)) for phrase in turned]
        text = next((text for text in texts if not _TWICE.search(text)), texts[0])
        return f"the other {text.removeprefix('the ')}" if step.is_other and text.startswith("the ") else text

    def _known(self, step: Step, number: int, start: str) -> str:
        """Return what a step starts from: E1 at first (by a pronoun where it was just named), then what was found."""
        return start if start and not number else f"this {self._noun_before(step)}"

    def _noun(self, step: Step) -> str:
        wording = _wording(step)
        noun = noun_of(self._types[step.target], wording.tail_noun if step.is_forward else wording.head_noun)
        return self._nouns.get(step.target, noun) if noun == THING else noun

    def _noun_before(self, step: Step) -> str:
        wording = _wording(step)
        noun = noun_of(self._types[step.source], wording.head_noun if step.is_forward else wording.tail_noun)
        return self._nouns.get(step.source, noun) if noun == THING else noun


def _wording(step: Step) -> Wording:
    if step.wording is None:
        raise ValueError(f"relation {step.relation} has no wording; sample with worded=True")
    return step.wording
