"""The trace of one question as a page shows it: rounds with their queries, what these found, and what was kept.

A story is a list of sections (before the first query, each round, the end) of blocks: a form (`query`, `text`,
`facts`, `moves`, `list`), the event's name, and what the form needs. An unknown event becomes `facts`: its fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gnnrag.run.loop import TRACE_DEPTH

Event = Mapping[str, Any]
Block = dict[str, Any]
KEPT = TRACE_DEPTH  # passages of a ranking or pool that a trace keeps: what it lacks may have stood further down
RERANKED = 10  # the same of a reordering
SHOWN = 10  # hits of a query, and passages of a pool, that are shown
MOST = 40  # items of a list
LONGEST = 1500  # characters of a text
LAST = {
    "chain", "cut", "evidence", "answer", "final", "context", "nodes", "verifier_scores", "verifier_chains",
    "sufficiency",
}  # fmt: skip
LAST_ROLES = {"chain", "verifier", "reader"}


class Passages:
    """Numbers for passage ids, in the order in which they are first asked for; each is put on the page once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, id_: str) -> int:
        return self._numbers.setdefault(id_, len(self._numbers))

    def numbers(self, ids: Iterable[str]) -> list[int]:
        return [self.number(id_) for id_ in ids]

    @property
    def ids(self) -> list[str]:
        return list(self._numbers)


def clipped(text: Any, longest: int = LONGEST) -> str:
    """Return a value as text that is not too long for a page."""
    words = "" if text is None else str(text)
    left = len(words) - longest
    return words if left <= 0 else f"{words[:longest]} … ({left} more characters in the run's files)"


class Story:
    """Tells one question; `passages` numbers passages, `gold` are the ids of the gold ones."""

    def __init__(self, passages: Passages, gold: Sequence[str]) -> None:
        self.passages, self.gold = passages, gold
        self.sections: list[dict[str, Any]] = []
        self._seen: set[str] = set()
        self._is_clipped = False  # whether a query so far brought more than its trace keeps
        self._pool: list[str] = []  # the first of all that was found so far, as the last event said
        self._pool_before: list[str] = []  # the same when the round began
        self._kept = self._kept_before = KEPT  # how many of each the events tell
        self._tell: dict[str, Callable[[Event], Block | None]] = {
            "query": self._query, "merge": self._merge, "cut": self._cut, "mgranrag": self._reranked,
            "evidence": self._evidence, "answer": self._answer, "judged": _judged, "decomposition": _decomposition,
            "expansion": _expansion,
            **dict.fromkeys(FACTS, _facts), **dict.fromkeys(TEXTS, _text),
        }  # fmt: skip

    def tell(self, events: Iterable[Event]) -> list[dict[str, Any]]:
        """Return the sections of a story: `stage` (`start`, a round's number, `end`) and `blocks`."""
        for event in events:
            name = str(event.get("event", "event"))
            stage = self._stage(name, event)
            if not self.sections or self.sections[-1]["stage"] != stage:
                self.sections.append({"stage": stage, "blocks": []})
                self._pool_before, self._kept_before = self._pool, self._kept
            try:
                block = self._tell.get(name, self._plain)(event)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError):
                block = self._plain(event)  # written by other code: shown as it is
            if block:
                self.sections[-1]["blocks"].append({"n": name, **block})
        return [section for section in self.sections if section["blocks"]]

    def _stage(self, name: str, event: Event) -> int | str:
        if name == "query":
            return int(event.get("round") or 0)
        is_last = name in LAST or (name == "llm" and event.get("role") in LAST_ROLES)
        now: int | str = self.sections[-1]["stage"] if self.sections else "start"
        return "end" if is_last and now != "start" else now

    def _query(self, event: Event) -> Block:
        ranking = event["ranking"]
        ids = [str(id_) for id_ in ranking["ids"]]
        block: Block = {
            "t": "query", "text": clipped(event["text"]), "kind": str(event.get("origin") or ""),
            "channel": str(event.get("channel") or ""), "by": str(ranking.get("branch") or ""),
            "retriever": event.get("retriever") or "", "filter": event.get("filter") or "",
            "scores": [float(f"{s:.4g}") for s in ranking.get("scores", ())[:SHOWN]],
        }  # fmt: skip
        if ranking.get("kind", "passage") != "passage":
            block["names"] = [clipped(id_, 200) for id_ in ids[:SHOWN]]
            sources = ranking.get("sources") or []
            block["sources"] = [self.passages.numbers(some[:3]) for some in sources[:SHOWN]]
            return block
        block["hits"] = self.passages.numbers(ids[:SHOWN])
        unseen = [place for place, id_ in enumerate(ids[:SHOWN]) if id_ not in self._seen]
        block["new"], block["beyond"] = ([], unseen) if self._is_clipped else (unseen, [])
        far = [(id_, place) for place, id_ in enumerate(ids, start=1) if place > SHOWN and id_ in self.gold]
        block["far"] = [[self.passages.number(id_), place] for id_, place in far]
        self._seen.update(ids)
        self._is_clipped = self._is_clipped or len(ids) >= KEPT
        return block

    def _merge(self, event: Event) -> Block | None:
        """What a round did to the first of the pool; the merges of one round are told as one."""
        self._pool, self._kept = [str(id_) for id_ in event["top"]], KEPT
        blocks = self.sections[-1]["blocks"]
        earlier = next((block for block in blocks if block["n"] == "merge"), None)
        came = [id_ for id_ in self._pool[:SHOWN] if id_ not in self._pool_before[:SHOWN]]
        fell = [id_ for id_ in self._pool_before[:SHOWN] if id_ not in self._pool[:SHOWN]]
        groups = [
            self._moves("up", came, self._pool_before, self._pool, self._kept_before),
            self._moves("out", fell, self._pool_before, self._pool),
        ]
        block = {"t": "moves", "new": int(event.get("new") or 0), "groups": groups if self._pool_before else []}
        if earlier is None:
            return block
        earlier.update(block | {"new": earlier["new"] + block["new"]})
        return None

    def _cut(self, event: Event) -> Block:
        chosen, kept = [str(i) for i in event["selected"]], [str(i) for i in event["kept"]]
        others = [id_ for id_ in kept if id_ not in chosen]
        lost = [id_ for id_ in self._pool[:SHOWN] if id_ not in kept]
        groups = (("chosen", chosen), ("kept", others), ("cut", lost))
        return {"t": "moves", "groups": [self._moves(name, ids, self._pool, kept, self._kept) for name, ids in groups]}

    def _reranked(self, event: Event) -> Block:
        before, after = list(event["before"]), list(event["after"])
        fell = [id_ for id_ in before if id_ not in after]
        self._pool, self._kept = after, RERANKED
        return {
            "t": "moves",
            "groups": [self._moves("order", after, before, after, RERANKED), self._moves("out", fell, before, after)],
        }

    def _moves(
        self, name: str, ids: Sequence[str], before: Sequence[str], after: Sequence[str], kept: int = KEPT
    ) -> Block:
        """Return passages with their ranks before and after, 0 where they had none.

        A passage missing from a list that the trace may have cut off has minus the length kept.
        """
        was, now = ({id_: place for place, id_ in enumerate(some, start=1)} for some in (before, after))
        unknown = -len(before) if len(before) >= kept else 0
        rows = [[self.passages.number(id_), was.get(id_, unknown), now.get(id_, 0)] for id_ in ids[:MOST]]
        return {"name": name, "rows": rows}

    def _evidence(self, event: Event) -> Block:
        rows = [[self.passages.number(str(id_)), 0, place] for place, id_ in enumerate(event["context"], start=1)]
        more = {"text": clipped(event["notes"])} if event.get("notes") else {}
        return {"t": "moves", "groups": [{"name": "read", "rows": rows[:MOST]}], **more}

    def _answer(self, event: Event) -> Block:
        support = self.passages.numbers(str(id_) for id_ in event.get("support") or ())
        left = {k: v for k, v in event.items() if k not in ("event", "support") and v not in (None, "", [], ())}
        groups = [{"name": "support", "rows": [[number, 0, 0] for number in support]}] if support else []
        return {"t": "moves", "groups": groups, "facts": _rows(left)}

    def _plain(self, event: Event) -> Block:
        fields = {k: v for k, v in event.items() if k != "event"}
        if set(fields) == {"text"}:
            return {"t": "text", "text": clipped(fields["text"])}
        return {"t": "facts", "rows": _rows(fields)}


def _rows(fields: Mapping[str, Any]) -> list[list[str]]:
    return [[str(k), _value(v)] for k, v in fields.items() if v not in (None, "", [], {}, ())]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return clipped("; ".join(f"{k}: {_value(v)}" for k, v in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f"; … {len(value) - MOST} more" if len(value) > MOST else ""
        return clipped("; ".join(_value(item) for item in value[:MOST]) + more)
    return clipped(value)


def _judged(event: Event) -> Block:
    counts = Counter(str(label) for label, _ in event["labels"])
    verdicts = ", ".join(f"{count} {label}" for label, count in sorted(counts.items()))
    facts = {"start": int(event["dot"]) + 1, "paths": event["paths"], "kept": event["kept"]}
    return {"t": "facts", "rows": _rows({**facts, "verdicts": verdicts})}


def _decomposition(event: Event) -> Block:
    side = {"side": event["side"]} if event.get("side") else {}
    return {"t": "list", **side, "items": [clipped(part, 400) for part in event["parts"][:MOST]]}


def _expansion(event: Event) -> Block:
    if "queries" not in event:  # MGranRAG: what was added to the graph
        return {"n": "additions", "t": "facts", "rows": _rows({"nodes": event["nodes"], "edges": event["edges"]})}
    items = [clipped(query, 400) for query in event["queries"][:MOST]]
    return {"t": "list", "side": str(event.get("side", "")), "items": items}


# Events shown by some of their fields, by what the page calls them.
FACTS = {
    "llm": {"role": "role", "prompt": "prompt", "problem": "problem", "reply": "reply"},
    "dot": {
        "start": "number", "concept": "concept", "anchors": "anchors", "matched by rule": "rule",
        "nodes within reach": "nodes", "only types": "types",
    },
    "sub_query": {
        "sub-question": "query", "as planned": "raw_query", "answer": "answer", "what helped": "refined",
    },
    "check": {"verdict": "verdict", "because": "analysis"},
}  # fmt: skip
TEXTS = {"background": "refined", "draft": "text"}


def _facts(event: Event) -> Block:
    values = {name: event.get(field) for name, field in FACTS[event["event"]].items()}
    if event["event"] == "dot":
        values["start"] = int(event["number"]) + 1
    if values.get("as planned") == event.get("query"):
        values.pop("as planned", None)
    side = {"side": str(event["side"])} if event.get("side") else {}
    return {"t": "facts", **side, "rows": _rows(values)}


def _text(event: Event) -> Block:
    return {"t": "text", "side": str(event["side"]), "text": clipped(event[TEXTS[event["event"]]])}
