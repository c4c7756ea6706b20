"""How strongly things that sentences name together belong together, over a whole corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log

WINDOW = 8  # things named further apart in a sentence, as in a long list, are not joined
LEAST_LIKELIHOOD = 6.63  # of an association: the 1% point of chi-squared with one degree of freedom
MOST_SHARE = 0.1  # of all joined things that one thing may be joined to: a hub that joins everything says nothing
FEWEST = 10  # things that any may be joined to

FEW = 100  # sentences that tell too little of chance: there everything that is named together is joined

Pair = tuple[str, str]  # in alphabetical order


def associate(rows: Iterable[Sequence[str]]) -> dict[Pair, float]:
    """Return the strength of each association, above 0 to 1, of the things that rows (sentences) name, in any order.

    Strength is normalised pointwise mutual information (Bouma 2009), to two places. Pairs that chance could explain
    (log-likelihood ratio, Dunning 1993), and those that stand together less often than by chance, are left out, unless
    there are fewer than `FEW` rows.
    """
    named: Counter[str] = Counter()
    together: Counter[Pair] = Counter()
    total = 0
    for row in rows:
        total += 1
        named.update(set(row))
        together.update(pairs_of(row))
    found = {}
    for pair, both in together.items():
        one, other = named[pair[0]], named[pair[1]]
        is_more = both * total > one * other and likelihood(both, one, other, total) >= LEAST_LIKELIHOOD
        if is_more or total < FEW:
            found[pair] = max(0.01, round(log(both * total / (one * other)) / max(-log(both / total), 1e-9), 2))
    return found


def pairs_of(row: Sequence[str]) -> set[Pair]:
    """Return the pairs of different things that a sentence names at most `WINDOW` apart."""
    return {
        (min(one, other), max(one, other))
        for at, one in enumerate(row)
        for other in row[at + 1 : at + 1 + WINDOW]
        if one != other
    }


def likelihood(both: int, one: int, other: int, total: int) -> float:
    """Return Dunning's log-likelihood ratio of a two by two table: counts of both, of one, of the other, of all."""
    cells = (both, one - both, other - both, total - one - other + both)
    rows, columns = (one, total - one), (other, total - other)
    expected = (rows[0] * columns[0], rows[0] * columns[1], rows[1] * columns[0], rows[1] * columns[1])
    order = (0, 1, 2, 3)
    return 2 * sum(cells[i] * log(cells[i] * total / expected[i]) for i in order if cells[i] > 0)


def damped(strength: Mapping[Pair, float]) -> dict[Pair, float]:
    """Return associations without the weakest of what is joined to more than `MOST_SHARE` of all; ties go by name."""
    of: dict[str, list[Pair]] = {}
    for pair in strength:
        for name in pair:
            of.setdefault(name, []).append(pair)
    most = max(FEWEST, int(MOST_SHARE * (len(of) - 1)))
    dropped: set[Pair] = set()
    for name in sorted(of, key=lambda name: (-len(of[name]), name)):
        left = [pair for pair in of[name] if pair not in dropped]
        dropped.update(sorted(left, key=lambda pair: (-strength[pair], pair))[most:])
    return {pair: value for pair, value in strength.items() if pair not in dropped}
