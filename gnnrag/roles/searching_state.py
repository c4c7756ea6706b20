"""What one side of GraphSearch knows of a question, and the rules that go by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnrag.pool import Pool
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.searching import Side, View
from gnnrag.roles.searching_parse import parse_triples
from gnnrag.search_config import GraphSearchConfig
from gnnrag.text.subqueries import HistoryItem, letters_only, references, variables, verbalise, without_placeholders


@dataclass
class SideState:
    """What one side of one question knows.

    `plan` is its decomposition as written, `views` what each item retrieved, `pool` its passages.
    """

    name: Side
    source: str
    plan: str = ""
    items: list[HistoryItem] = field(default_factory=list)
    views: dict[int, View] = field(default_factory=dict)
    pool: Pool = field(default_factory=Pool)
    draft: str = ""
    rounds: int = 0
    done: bool = False


def must_ground(side: SideState, position: int, config: GraphSearchConfig) -> bool:
    """Tell whether a sub-query refers to earlier ones (or, as released, might)."""
    item, always = side.items[position], config.graph_grounding == "always"
    if item.kind == "expanded" or "grounding" in config.ablate:
        return False
    if side.name == "semantic":
        return "#" in item.query if always else any(0 < k < item.index for k in references(item.query))
    known = {k for earlier in side.items[:position] for k in variables(earlier.raw_query)}
    return position > 0 if always else bool(known.intersection(variables(item.query)))


def retrieval_string(item: HistoryItem, side: Side, config: GraphSearchConfig) -> str:
    """Return what goes to the retriever for a sub-query; empty where only placeholders are left."""
    is_released = config.triple_text == "letters_only"
    if item.kind == "expanded" or (side == "semantic" and is_released):
        return item.query
    if side == "semantic":
        return without_placeholders(item.query)
    if is_released:
        return letters_only(item.query)
    try:
        return verbalise(parse_triples(item.query)) if item.query.lstrip().startswith("[") else item.query
    except MalformedError:
        return without_placeholders(item.query)
