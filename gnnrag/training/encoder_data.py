"""Settings of the next-hop encoder's training, its sets and the corpus that they share, and the examples of a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt

from gnnrag.errors import ConfigError
from gnnrag.retrievers.base import best_positions
from gnnrag.roles.tuned.encoder import NextHopConfig
from gnnrag.training.composing import bare_title, compose, facts_of
from gnnrag.training.config import NetworkConfig, SetConfig
from gnnrag.training.sets import OpenSet, open_data
from gnnrag.types import OnProgress, Question

STAGES = ("embeddings",)
COMPOSED = "composed"  # the set of made questions
_WRONG = 8  # high-ranked passages that are not gold, of which a wrong one is drawn
# The passages that a question of a step is read with (`draw_prefix`):
_NONE = 0.3  # share of questions that are read alone: the first hop
_ONE_WRONG = 0.2  # share with a single wrong passage, as a search may have found it; all others have gold passages
_UNORDERED = 0.2  # of these, the share whose gold passages are drawn in any order, not from the first hop on
_SPOILT = 0.2  # of those with two or more passages, the share where a wrong one replaces one of them


@dataclass
class EncoderSetConfig(SetConfig):
    first_of: str | None = None  # its questions and triples are first hops of composed questions about this set's names


@dataclass
class TrainEncoderConfig(NetworkConfig):
    kind: str = "encoder"
    sets: dict[str, EncoderSetConfig] = field(default_factory=dict)  # by name; those that train share one corpus
    # factor of the probability that a batch takes a question composed of two; 0: none are made
    composed: Annotated[float, Ge(0)] = 1.0
    network: NextHopConfig = field(default_factory=NextHopConfig)
    temperature: Annotated[float, Gt(0)] = 0.05  # of the softmax over all passages


def check_encoder(config: TrainEncoderConfig) -> None:
    """Raise ConfigError where a set of first hops has no second ones."""
    for name, one in config.sets.items():
        other = config.sets.get(one.first_of or name)
        if other is None or (one.first_of and "report" in (one.use, other.use)):
            raise ConfigError(f"sets.{name}.first_of={one.first_of!r}: name one of the sets that train")


@dataclass(frozen=True)
class EncoderSet(OpenSet):
    """An opened set; only questions with gold passages take part."""

    config: EncoderSetConfig

    @cached_property
    def questions(self) -> dict[str, Question]:
        return {id_: question for id_, question in super().questions.items() if question.gold}

    @property
    def inputs(self) -> dict[str, Any]:
        return self.fingerprints(STAGES)


def open_set(name: str, config: EncoderSetConfig, on_index: OnProgress) -> EncoderSet:
    return EncoderSet(name, config, *open_data(config.data, config.index, STAGES, on_index))


@dataclass(frozen=True)
class ChainQuestion:
    """A question with its gold passages (numbers in the corpus of all sets together), in the order of the hops or not.

    Where the order is not known, the hop that the base ranks higher counts as the first.
    """

    text: str
    gold: tuple[int, ...]
    is_ordered: bool


@dataclass(frozen=True, eq=False)
class ChainExample:
    """A question with its embedding and its passages, as numbers in the joint corpus."""

    text: str
    vector: np.ndarray  # (dim,) float32: the base's
    gold: tuple[int, ...]  # first hops first
    wrong: tuple[int, ...]  # the best by cosine that are not gold


@dataclass(frozen=True, eq=False)
class Drawn:
    """An item of a step: a question, the chain that is read with it, and the passages that may come next."""

    example: ChainExample
    chain: tuple[int, ...]
    targets: tuple[int, ...]


class JointCorpus:
    """The passages of all sets that train, one after the other: each set's are distractors of the others'."""

    def __init__(self, sets: Mapping[str, EncoderSet]) -> None:
        self.sets = {name: one for name, one in sets.items() if one.config.use != "report"}
        self.contents: list[str] = []
        self._place: dict[tuple[str, str], int] = {}
        for name, one in self.sets.items():
            for passage in one.index.passages:
                self._place[name, passage.id] = len(self.contents)
                self.contents.append(passage.content)
        self.vectors = np.concatenate([one.index.passage_vectors for one in self.sets.values()])
        self.embedder = next(iter(self.sets.values())).index.embedder

    def asked(self, name: str, ids: Collection[str]) -> list[ChainQuestion]:
        one = self.sets[name]
        titles, found = {p.id: p.title for p in one.index.passages}, []
        for question in one.questions.values():
            if question.id in ids:
                gold, is_ordered = ordered(question, titles)
                found.append(ChainQuestion(question.text, tuple(self._place[name, id_] for id_ in gold), is_ordered))
        return found

    def composed(self, ids: Mapping[str, Collection[str]], seed: int) -> list[ChainQuestion]:
        """Return questions composed of those with these ids (by set) and of their triples."""
        found = []
        for number, (name, one) in enumerate(self.sets.items()):
            second = one.config.first_of
            if second is None:
                continue
            passages = {p.id: p for p in one.index.passages}
            facts = [f for q in one.questions.values() if q.id in ids[name] for f in facts_of(q, passages)]
            questions = [q for q in self.sets[second].questions.values() if q.id in ids[second]]
            for made in compose(facts, questions, seed + number):
                first, last = made.gold
                found.append(ChainQuestion(made.text, (self._place[name, first], self._place[second, last]), True))
        return found

    def examples(self, asked: Sequence[ChainQuestion]) -> list[ChainExample]:
        """Embed questions by the base, and find the wrong passages that it ranks highest."""
        found = []
        vectors = self.embedder.encode([one.text for one in asked], is_query=True) if asked else ()
        for one, vector in zip(asked, vectors, strict=True):
            cosines = self.vectors @ vector
            best = best_positions(cosines, _WRONG + len(one.gold)).tolist()
            wrong = [place for place in best if place not in one.gold][:_WRONG]
            gold = one.gold
            if not one.is_ordered:
                gold = tuple(place for _, place in sorted((-float(cosines[place]), place) for place in one.gold))
            found.append(ChainExample(one.text, vector, gold, tuple(wrong)))
        return found


def ordered(question: Question, titles: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return a question's gold ids and whether their order is known: by decomposition, or by evidence triples."""
    hops = [hop.gold for hop in question.decomposition if hop.gold in question.gold]
    for head, _, _ in question.evidence:
        hops += [id_ for id_ in question.gold if bare_title(titles[id_]) == bare_title(head)]
    found = [id_ for id_ in dict.fromkeys(hops) if id_]
    return [*found, *(id_ for id_ in question.gold if id_ not in found)], len(question.gold) == 1 or bool(found)


def draw_prefix(example: ChainExample, rng: np.random.Generator) -> Drawn:
    """Draw the passages that a question is read with; what is right then is any gold passage that is missing."""
    gold, number = example.gold, float(rng.random())
    chain: list[int] = []
    if number >= _NONE and len(gold) > 1 and example.wrong:
        if number < _NONE + _ONE_WRONG:
            chain = [int(rng.choice(example.wrong))]
        else:
            count = int(rng.integers(1, len(gold)))
            is_mixed = rng.random() < _UNORDERED
            chain = rng.permutation(gold)[:count].tolist() if is_mixed else list(gold[:count])
            if count > 1 and rng.random() < _SPOILT:
                chain[int(rng.integers(count))] = int(rng.choice(example.wrong))
    return Drawn(example, tuple(chain), tuple(place for place in gold if place not in chain))
