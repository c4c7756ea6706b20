"""Paths of a graph that a question can be made of, and how they and relations are told (DotRAG, specification 8.5).

Well-known ones have wordings in `wordings.yaml`, other verb phrases their own words; "is" and "has" are not told.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.index import Index
from gnnrag.prompts.untrusted import inline
from gnnrag.text.normalise import phrase_key
from gnnrag.types import Passage

PERSON = "person"
_ROMAN = re.compile(r"[IVX]+|of|the|von|de")
THING = "thing"  # what is said of an entity of which nothing is known


@dataclass(frozen=True, slots=True)
class Wording:
    """One relation in words. `{x}` is the end that is known, `{k}` what the asked end is called.

    Predicates of one `key` are the same relation. Noun phrases for an end and questions (`ask_`) come the most natural
    first; the `_noun` stands for an unknown type. `is_one_way`: only tails are asked for, as X has many heads.
    """

    key: str
    tail: tuple[str, ...]
    head: tuple[str, ...]
    ask_tail: str
    ask_head: str
    tail_noun: str = THING
    head_noun: str = THING
    is_one_way: bool = False


_DATA: dict[str, Any] = yaml.safe_load((files("gnnrag.questions") / "wordings.yaml").read_text("utf-8"))
WORDINGS = {
    key: Wording(
        key, tuple(row["tail"]), tuple(row["head"]), row["ask"][0], row["ask"][1], row["nouns"][0], row["nouns"][1],
        row.get("one_way", False),
    )
    for key, row in _DATA["relations"].items()
}  # fmt: skip
_SAME: dict[str, str] = _DATA["same"]
_NOUNS: dict[str, str] = _DATA["nouns"]
_UNFIT = {noun: frozenset(kinds) for noun, kinds in _DATA["unfit"].items()}
_LISTS = ("empty", "intransitive", "participles", "prepositions", "of_place", "of_time")
_EMPTY, _INTRANSITIVE, _PARTICIPLES, _PREPOSITIONS, _OF_PLACE, _OF_TIME = (
    frozenset(_DATA[name].split()) for name in _LISTS
)
# Where the tail is a time, the birthplace is a birthday; what cannot have a time is not told.
_OF_TIMES = {"born_in": "born_on", "died_in": "died_on"}
_NEVER_TIMES = ("located_in", "set_in")
_AUX = re.compile(r"(?:is|was|are|were|has been|had been|have been|be|been|being) ")
_PREDICATE = re.compile(r"[a-z][a-z' -]{2,50}")


@cache
def wording_of(predicate: str, tail_is_time: bool = False) -> Wording | None:
    """Return how a predicate is told; None if it cannot be. A time instead of a place changes "born in"."""
    bare = _AUX.sub("", " ".join(predicate.replace("_", " ").lower().split()), count=1)
    key = _SAME.get(predicate, _SAME.get(bare, bare)).replace(" ", "_")
    if tail_is_time:
        key = _OF_TIMES.get(key, key)
    elif key in _OF_TIMES.values():
        return None
    if key in WORDINGS:
        return None if tail_is_time and key in _NEVER_TIMES else WORDINGS[key]
    verb, _, rest = bare.partition(" ")
    if not _PREDICATE.fullmatch(bare) or verb in _EMPTY or (rest and rest not in _PREPOSITIONS):
        return None
    return _when(verb, rest) if tail_is_time else _own_words(verb, rest)


def noun_of(types: str, default: str) -> str:
    """Return what an entity of these types (joined by `|`) is called; a film is not called a work."""
    noun = next((_NOUNS[kind] for kind in types.lower().split("|") if kind in _NOUNS), default)
    return default if noun == "work" and default == "film" else noun


def fits(wording: Wording, head_types: str, tail_types: str) -> bool:
    """Tell whether the types of a relation's ends are such as its wording speaks of; unknown types fit."""
    for noun, types in ((wording.head_noun, head_types), (wording.tail_noun, tail_types)):
        kinds = {_NOUNS[kind] for kind in types.lower().split("|") if kind in _NOUNS}
        if kinds and kinds <= _UNFIT.get(noun, frozenset()):
            return False
    return True


def names_fit(wording: Wording, head: str, tail: str) -> bool:
    """Tell whether those ends that must be persons have names by which one can be told: not "Louis" or "John II"."""
    return all(
        noun != PERSON or _is_full(name) for noun, name in ((wording.head_noun, head), (wording.tail_noun, tail))
    )


def _is_full(name: str) -> bool:
    return len([word for word in re.findall(r"[^\W\d_]+", name) if not _ROMAN.fullmatch(word)]) > 1


def _is_passive(verb: str) -> bool:
    return (verb.endswith("ed") or verb in _PARTICIPLES) and verb not in _INTRANSITIVE


def _when(verb: str, rest: str) -> Wording | None:
    if not _is_passive(verb) or (rest and rest not in _OF_TIME):
        return None
    tails = (f"the date when {{x}} was {verb}", f"the time at which {{x}} was {verb}")
    return Wording(f"{verb}_when", tails, tails, f"When was {{x}} {verb}?", "", "date", is_one_way=True)


def _own_words(verb: str, rest: str) -> Wording | None:
    """Return the wording of a verb phrase in its own words: (represented), (held in), (lived in), (flows to)."""
    bare = f"{verb} {rest}".strip()
    key, is_vague = bare.replace(" ", "_"), rest in _OF_PLACE
    if _is_passive(verb) and not rest:  # X represented Y
        tails = [f"the {{k}} {verb} by {{x}}", f"the {{k}} that {{x}} {verb}"]
        heads = [f"the {{k}} that {verb} {{x}}", f"the {{k}} by which {{x}} was {verb}"]
        asks = (f"Which {{k}} was {verb} by {{x}}?", f"Which {{k}} {verb} {{x}}?")
    elif _is_passive(verb):  # X was held in Y
        tails = [f"the {{k}} {rest} which {{x}} was {verb}", f"the {{k}} that {{x}} was {verb} {rest}"]
        heads = [f"the {{k}} {bare} {{x}}", f"the {{k}} that was {bare} {{x}}"]
        asks = (f"{rest.capitalize()} which {{k}} was {{x}} {verb}?", f"Which {{k}} was {bare} {{x}}?")
    elif (verb in _INTRANSITIVE and rest) or _is_present(verb):  # X lived in Y, X flows to Y
        tails = [f"the {{k}} {rest} which {{x}} {verb}" if rest else f"the {{k}} that {{x}} {verb}"]
        heads = [f"the {{k}} that {bare} {{x}}"]
        asks = (f"What is {tails[0]}?", f"Which {{k}} {bare} {{x}}?")
    else:
        return None
    return Wording(key, tuple(tails), tuple(heads), *asks, is_one_way=is_vague)


def _is_present(verb: str) -> bool:
    return len(verb) > 3 and verb.endswith("s") and not verb.endswith(("ss", "us", "is"))


# Which relation a sentence states of its subject and a name: the few words before the name, where they are clear.
#
# The offline extractor's relations are sentences about the entity that a passage is about. "X is a 1926 film directed
# by Y and starring Z" tells two relations of X. A cue counts only in the main clause: after "who", "whose" or a full
# stop of another subject the words are about something else.

_CUES = (
    "directed by", "written by", "composed by", "produced by", "founded by", "designed by", "painted by", "edited by",
    "created by", "invented by", "discovered by", "published by", "released by", "owned by", "performed by",
    "sung by", "recorded by", "starring", "stars", "based on", "set in", "born in", "born at", "born on", "died in",
    "died at", "died on", "located in", "situated in", "part of", "member of", "capital of", "son of", "daughter of",
    "father of", "mother of", "brother of", "sister of", "wife of", "husband of", "married to", "married",
    "educated at", "studied at", "graduated from", "attended", "played for", "plays for", "named after", "flows into",
)  # fmt: skip
# What may stand between the cue and the name.
_GAP = r"(?:\s+(?:the|a|an|his|her|its|fellow|actor|actress|director|king|queen|sir|lord|emperor|prince|duke))*\s+"
# "starring A, B and C": each of them stars.
_LIST = r"(?:[A-Z][\w.'’-]*(?: [A-Z][\w.'’-]*)*(?:, (?:and )?| and ))*"
_LISTED = re.compile(rf"\b(starring|stars|(?:{'|'.join(c for c in _CUES if c.endswith(' by'))}))\s+{_LIST}$")
_CUE = re.compile(rf"\b({'|'.join(re.escape(c) for c in sorted(_CUES, key=len, reverse=True))}){_GAP}$", re.IGNORECASE)
_OTHER_SUBJECT = re.compile(
    r"[;:(]|, (?:he|she|it|they)\b"
    r"|\b(?:who|whom|whose|which|that|where|when|while|although|because|but|after|before|if)\b",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\s*(?:he|she|it|they|the \w+|this \w+)\b", re.IGNORECASE)
_NO_KIN = ("part of", "member of", "capital of")
_NAME = re.compile(r"\b[A-Z]")
_MOST = 200  # characters between the start of the sentence and the name


def cue_of(sentence: str, subject: str, name: str) -> str | None:
    """Return the cue right before `name` in a sentence about `subject`; None where there is none that is clear."""
    at = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence)
    if at is None or at.start() > _MOST or subject == name:
        return None
    before = sentence[: at.start()]
    # About the subject: it opens the sentence by its name, by a part of it, or by a pronoun.
    opening = subject.split(" (")[0]
    first = next((word for word in re.findall(r"\w+", opening) if len(word) > 2), opening)
    if not (before.lower().lstrip().startswith((opening.lower(), first.lower())) or _PRONOUN.match(before)):
        return None
    cue = _CUE.search(before) or _LISTED.search(before)
    if cue is None:
        return None
    body = re.sub(re.escape(opening), " ", before[: cue.start()], count=1, flags=re.IGNORECASE)
    body = re.sub(r"\([^()]*\)", " ", body)  # dates of life
    if _OTHER_SUBJECT.search(body):
        return None
    # "He married Ann, daughter of Jim": with another name before it, kinship may be that one's.
    is_kinship = cue[1].lower().endswith(" of") and cue[1].lower() not in _NO_KIN
    return None if is_kinship and _NAME.search(body.strip()[1:]) else cue[1].lower()


# -------------------------------------------------------------------------------------------------------------- paths
TIMES = frozenset(("date", "year", "number", "rating", "votes"))  # good answers, but nothing leads on from them
UNSURE = "unsure"
_ENDS_WELL = re.compile(r"[\w)\"'’]\.?$")  # a name with a mark of its own at its end spoils the sentence
_GROUPS_TRIED = 4  # relations of a node before a walk is given up


@dataclass(frozen=True, slots=True)
class Step:
    """One edge of a path: `source` and `target` in its direction, `is_forward` where that is from head to tail.

    `wording` is None where only the graph's own text tells it. `is_other`: the relation also leads to an entity of the
    path before, so that the target is "the other" one.
    """

    source: int
    target: int
    relation: int
    is_forward: bool
    wording: Wording | None = None
    is_other: bool = False


@dataclass(frozen=True, slots=True)
class GraphPath:
    """E1 to E(n+1) over n steps; the question starts at the first, its answer is the last."""

    nodes: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """Which paths are taken: of `hops` steps, entities of `min_degree` neighbours or more, none of type `unsure`.

    Entities above `percentile` of the degrees are hubs. `typed`: an entity has a known type, or a passage is about it.
    `worded`: every relation has a wording and leads to one entity alone, so that the question has one answer.
    """

    hops: int = 3
    min_degree: int = 2
    percentile: float = 95.0
    typed: bool = True
    worded: bool = True


class PathSampler:
    """Draws simple paths without shortcuts, none of them through hubs."""

    def __init__(self, graph: KnowledgeGraph, rules: SamplingRules, titles: Iterable[str] = ()) -> None:
        self._graph, self._rules, self._adjacency = graph, rules, graph.adjacency
        degrees = self._adjacency.degree
        joined = degrees[degrees > 0]
        self.max_degree = float(np.percentile(joined, rules.percentile)) if len(joined) else 0.0
        kinds = [set(kind.lower().split("|")) - {""} for kind in graph.types]
        about = set(titles)
        named = [bool(kind) or not rules.typed or name in about for kind, name in zip(kinds, graph.names, strict=True)]
        known = np.array([ok and UNSURE not in kind for ok, kind in zip(named, kinds, strict=True)], dtype=bool)
        self._is_usable = known & (degrees >= rules.min_degree) & (degrees <= self.max_degree)
        self._is_time = np.array([bool(kind & TIMES) for kind in kinds], dtype=bool)
        self._groups = self._worded() if rules.worded else self._plain()
        self._starts = [
            node
            for node in sorted(self._groups)
            if self._is_usable[node] and not self._is_time[node] and _ENDS_WELL.search(graph.names[node])
        ]

    def draw(self, seed: int, attempts: int) -> Iterator[GraphPath]:
        """Yield paths in an order that the seed decides; one may come twice. `attempts` is a number of walks."""
        rng = random.Random(seed)
        for _ in range(attempts if self._starts else 0):
            path = self._walk(rng)
            if path:
                yield path

    def _walk(self, rng: random.Random) -> GraphPath | None:
        nodes, steps = [rng.choice(self._starts)], list[Step]()
        while len(steps) < self._rules.hops:
            step = next((s for s in self._choices(rng, nodes) if self._may_follow(nodes, s.target)), None)
            if step is None or (self._is_time[step.target] and len(steps) + 1 < self._rules.hops):
                return None
            nodes.append(step.target)
            steps.append(step)
        return GraphPath(tuple(nodes), tuple(steps))

    def _choices(self, rng: random.Random, nodes: list[int]) -> Iterator[Step]:
        groups = self._groups.get(nodes[-1], [])
        for wording, is_forward, targets in rng.sample(groups, min(_GROUPS_TRIED, len(groups))):
            new = [(target, relation) for target, relation in targets if target not in nodes]
            if len({target for target, _ in new}) == 1:
                target, relation = new[0]
                yield Step(nodes[-1], target, relation, is_forward, wording, len(new) < len(targets))

    def _may_follow(self, nodes: list[int], target: int) -> bool:
        """Tell whether an entity is usable, and joined to no entity of the path but the last."""
        if not self._is_usable[target]:
            return False
        key = phrase_key(self._graph.names[target])
        if not key or any(key == phrase_key(self._graph.names[node]) for node in nodes):
            return False
        around = self._adjacency.neighbours_of(target)
        return not any(node in around for node in nodes[:-1])

    def _worded(self) -> dict[int, list[tuple[Wording | None, bool, list[tuple[int, int]]]]]:
        """Return for each entity its relations by wording and direction, with all that they lead to."""
        graph = self._graph
        relations: dict[int, dict[tuple[str, bool], tuple[Wording, list[tuple[int, int]]]]] = {}
        for relation, (head, tail) in enumerate(graph.ends.tolist()):
            predicate = graph.labels[relation] or cue_of(graph.texts[relation], graph.names[head], graph.names[tail])
            wording = wording_of(predicate, bool(self._is_time[tail])) if predicate and head != tail else None
            if wording is None or not fits(wording, graph.types[head], graph.types[tail]):
                continue
            if not names_fit(wording, graph.names[head], graph.names[tail]):
                continue
            for source, target, is_forward in ((head, tail, True), (tail, head, False)):
                if wording.is_one_way and not is_forward:
                    continue
                groups = relations.setdefault(source, {})
                groups.setdefault((wording.key, is_forward), (wording, []))[1].append((target, relation))
        return {
            node: [(wording, is_forward, targets) for (_, is_forward), (wording, targets) in groups.items()]
            for node, groups in relations.items()
        }

    def _plain(self) -> dict[int, list[tuple[Wording | None, bool, list[tuple[int, int]]]]]:
        graph = self._graph
        relations: dict[int, list[tuple[Wording | None, bool, list[tuple[int, int]]]]] = {}
        for relation, (head, tail) in enumerate(graph.ends.tolist()):
            if head != tail and (graph.labels[relation] or graph.texts[relation]).strip():
                relations.setdefault(head, []).append((None, True, [(tail, relation)]))
                relations.setdefault(tail, []).append((None, False, [(head, relation)]))
        return relations


# What a question's author is told of a path, and what the question's row says of it.

_DESCRIBED = 200  # characters of a description that are shown


@dataclass(frozen=True, slots=True)
class PathNames:
    """The names of a path's entities, the name first and then its aliases; `names[0]` is E1, the last is the answer."""

    names: tuple[tuple[str, ...], ...]

    @property
    def start(self) -> str:
        """The name that a question must have."""
        return self.names[0][0]

    @property
    def answer(self) -> str:
        """The name of the last entity."""
        return self.names[-1][0]


@dataclass(frozen=True)
class PathView:
    """A path with the names and texts of its graph, and the passages that state it."""

    index: Index
    path: GraphPath

    @property
    def graph(self) -> KnowledgeGraph:
        """The knowledge graph."""
        return self.index.knowledge

    @property
    def names(self) -> PathNames:
        """The names of the entities, E1 first."""
        return PathNames(tuple((self.graph.names[n], *self.graph.aliases[n]) for n in self.path.nodes))

    @property
    def lines(self) -> str:
        """The path for a language model: a line for each entity, and one for each relation."""
        number = {node: f"E{i}" for i, node in enumerate(self.path.nodes, start=1)}
        lines = []
        for node in self.path.nodes:
            kind = self.graph.types[node].replace("|", " or ") or "unknown"
            description = self.graph.descriptions[node][:_DESCRIBED]
            name = f"{number[node]} = {self.graph.names[node]} (type: {kind})"
            lines.append(inline(name + (f": {description}" if description else "")))
        for step in self.path.steps:
            head, tail = (int(n) for n in self.graph.ends[step.relation])
            lines.append(inline(f"{number[head]} -> {number[tail]}: {self.graph.statement(step.relation)}"))
        return "\n".join(lines)

    @property
    def triples(self) -> list[tuple[str, str, str]]:
        """The relations of the path as the graph states them: head, relation, tail."""
        graph, found = self.graph, []
        for step in self.path.steps:
            head, tail = graph.ends[step.relation]
            label = graph.labels[step.relation] or (step.wording.key if step.wording else "")
            label = label or graph.texts[step.relation]
            found.append((graph.names[head], label.replace("_", " "), graph.names[tail]))
        return found

    def gold(self, step: Step) -> str:
        """Return the passage stating a step: the one about its source, else about its target, else the first."""
        rows = [self.index.passages[i] for i in self.graph.relation_passages[step.relation]]
        for node in (step.source, step.target):
            key = phrase_key(self.graph.names[node])
            for passage in rows:
                if phrase_key(passage.title) == key:
                    return passage.id
        return rows[0].id

    def start_passages(self, most: int) -> tuple[Passage, ...]:
        """Return passages that mention E1, those about it first."""
        start = self.path.nodes[0]
        rows = [self.index.passages[i] for i in self.graph.entity_passages[start]]
        key = phrase_key(self.graph.names[start])
        return tuple(sorted(rows, key=lambda p: phrase_key(p.title) != key)[:most])

    def row(self, row_id: str, question: str, parts: list[str], origin: dict[str, Any]) -> dict[str, Any]:
        """Return a line of a canonical questions file."""
        golds = [self.gold(step) for step in self.path.steps]
        names = [self.graph.names[node] for node in self.path.nodes]
        hops = zip(parts, names[1:], golds, strict=True)
        return {
            "id": row_id,
            "question": question,
            "answers": list(dict.fromkeys(self.names.names[-1])),
            "type": f"{len(self.path.steps)}hop",
            "gold": list(dict.fromkeys(golds)),
            "evidence": [list(triple) for triple in self.triples],
            "decomposition": [{"question": q, "answer": a, "gold": g} for q, a, g in hops],
            "hops": len(self.path.steps),
            "anchor": names[0],
            "path": names,
            "generator": origin,
            # Methods are scored by the nodes they find where the nodes are the corpus.
            **({"nodes": [names[-1]]} if self.index.config.extract.method == "kb" else {}),
        }
