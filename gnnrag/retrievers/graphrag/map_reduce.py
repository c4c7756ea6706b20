"""Which community reports a global search reads, in which batches, and what of the answers it keeps.

Pure functions of Microsoft GraphRAG's global search (Edge et al., arXiv 2404.16130, section 3.1.6). Positions stand for
reports and for points.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from gnnrag.graphs.communities import Communities


def shuffled(count: int, seed: int = 86) -> list[int]:
    """Return 0..count-1 as `random.seed(seed)` and `random.shuffle` would order them; no global state is touched."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def fill_batches(
    order: Sequence[int], tokens: Sequence[int] | Mapping[int, int], budget: int, header: int = 0
) -> list[list[int]]:
    """Fill batches in the order given; what overflows one opens the next, and what fits into none travels alone.

    Args:
        order: positions.
        tokens: of each item.
        budget: tokens of a batch.
        header: tokens that every batch starts with.
    """
    batches: list[list[int]] = []
    used = 0
    for item in order:
        if not batches or used + tokens[item] > budget:
            batches.append([])
            used = header
        batches[-1].append(item)
        used += tokens[item]
    return batches


def best_first(items: Sequence[int], weights: Any, ratings: Any) -> list[int]:
    """Return items by occurrence weight, then by rating (a number for each position), descending; ties keep order."""
    return sorted(items, key=lambda i: (-weights[i], -ratings[i]))


def keep_points(
    scores: Sequence[float], tokens: Sequence[int], budget: int, skip_large: bool = False
) -> tuple[list[int], list[int]]:
    """Rank points for the reduce step, and keep what fits.

    Args:
        scores: of each point, batch by batch; those of 0 or less are dropped.
        tokens: of each point.
        budget: tokens of all kept points.
        skip_large: go on behind a point that does not fit; the release stops there.

    Returns:
        Ranked positions (score descending, ties in order), and those that are kept.
    """
    ranked = sorted((i for i in range(len(scores)) if scores[i] > 0), key=lambda i: -scores[i])
    kept, used = [], 0
    for i in ranked:
        if used + tokens[i] > budget:
            if skip_large:
                continue
            break
        used += tokens[i]
        kept.append(i)
    return ranked, kept


def up_to_level(communities: Communities, max_level: int) -> list[int]:
    """Return communities of a level up to `max_level`: what the release reads, parents beside their children (Q-MS-6).

    Its roll-up was to keep the deepest report of each entity; `deepest` does.
    """
    return np.flatnonzero(communities.levels <= max_level).tolist()


def deepest(communities: Communities, max_level: int, allowed: Collection[int] | None = None) -> list[int]:
    """Return the communities that are, for one of their members at least, the deepest up to `max_level`; ascending.

    Args:
        communities: the hierarchy.
        max_level: largest level.
        allowed: those that may be read; members of others are read in the parts above them. None for all.
    """
    last: dict[int, int] = {}
    for i in up_to_level(communities, max_level):  # coarse ones come first
        if allowed is None or i in allowed:
            last.update(dict.fromkeys(communities.members[i].tolist(), i))
    return sorted(set(last.values()))


async def descend(
    communities: Communities,
    allowed: Sequence[int],
    rate: Callable[[Sequence[int]], Awaitable[Sequence[float]]],
    threshold: float = 1.0,
) -> list[int]:
    """Choose reports from the top of the hierarchy down (Microsoft GraphRAG's dynamic selection).

    Of a report that is kept the children are rated next; a parent of which a child is kept is dropped. Where a whole
    level fails before anything was kept, all of the next are rated.

    Args:
        communities: the hierarchy.
        allowed: reports that may be read, ascending.
        rate: reports to ratings.
        threshold: least rating of a report that is kept.
    """
    depth = max((int(communities.levels[i]) for i in allowed), default=-1) + 1
    levels = [[i for i in allowed if communities.levels[i] == level] for level in range(depth)]
    may_read, kept, level = set(allowed), dict[int, None](), 0
    wave = levels[0] if levels else []
    while wave:
        below: list[int] = []
        for i, rating in zip(wave, await rate(wave), strict=True):
            if rating >= threshold:
                kept[i] = None
                kept.pop(int(communities.parents[i]), None)
                below += [child for child in communities.children[i].tolist() if child in may_read]
        level += 1
        wave = levels[level] if not below and not kept and level < depth else below
    return sorted(kept)


def local_order(matches: Sequence[int], ratings: Sequence[float]) -> list[int]:
    """Return positions by how many selected entities a community holds, then by its rating, both descending."""
    return sorted(range(len(matches)), key=lambda i: (-matches[i], -ratings[i]))


def split_budget(tokens: int, community_share: float, text_share: float) -> tuple[int, int, int]:
    """Return the tokens of communities, of the local tables and of passages."""
    communities, texts = int(tokens * community_share), int(tokens * text_share)
    return communities, tokens - communities - texts, texts
