"""Counts what language models did wrong in a run, by role, from its rows (`Prediction.usage`).

A request is `bad` in these cases: its reply could not be read (`malformed`); there was none (`errors`; `rejected` if
the request's content was the reason); it was used although its labels (`unlabelled`) or its end (`cut_but_read`) are
missing; it gives away an answer instead of a thought (`leaked`). Other counts say why (`cut_off`, `timeout`, ...), and
how often a role's fallback gave its result (`fallback`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Counts = Mapping[str, float]
# The flags that roles and prompters set (`Session.flag`), and what they are counted as. Each bad reply has one of BAD.
_OF_FLAG = {
    "parse_failure": "malformed", "llm_error": "errors", "answer_unlabelled": "unlabelled",
    "invalid_move": "unlabelled", "no_move": "unlabelled", "answer_leak": "leaked",
    "repeated_prompt": "not_asked_again",
}  # fmt: skip
BAD = ("malformed", "errors", "rejected", "unlabelled", "cut_but_read", "leaked")
WHY = (
    "cut_off", "empty", "refused", "no_answer", "not_asked_again", "out_of_range", "late_marker",
    "timeout", "unanswered", "too_long", "filtered",
)  # fmt: skip
KINDS = (*BAD, *WHY, "fallback")
WARN = 0.1  # share of bad replies above which there is a warning, where nobody sets another
SPENT = ("calls", "prompt_tokens", "completion_tokens", "cost")
_FALLBACK = re.compile(r".*_(?:failed|partial|fallback)|loop_error")


def by_role(predictions: Iterable[Any]) -> dict[str, dict[str, float]]:
    """Return what each role that asked a model has spent and done, only what is not zero; see `of_counts`."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for prediction in predictions:
        for role, counts in prediction.usage.get("roles", {}).items():
            sums[role].update(counts)
    return {role: summary for role, counts in sorted(sums.items()) if (summary := of_counts(counts))}


def by_writer(facts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the same of the writers of an index, from what a stage recorded of itself: `triples calls`, and so on."""
    sums: dict[str, dict[str, float]] = {key[: -len(" calls")]: {} for key in facts if key.endswith(" calls")}
    for key, value in facts.items():
        writer, _, name = key.partition(" ")
        if writer in sums and isinstance(value, int | float):
            sums[writer][name] = value
    return {writer: of_counts(counts) for writer, counts in sorted(sums.items())}


def of_counts(counts: Counts) -> dict[str, float]:
    """Return one role's `asked` and `bad` requests, SPENT, KINDS, and all other flags (`Session.usage`) by name."""
    asked = sum(counts.get(name, 0) for name in ("calls", "llm_error", "rejected"))
    if not asked:
        return {}
    sums: dict[str, float] = defaultdict(float)
    for flag, count in counts.items():
        is_known = flag in SPENT or flag in KINDS
        sums[flag if is_known else _OF_FLAG.get(flag, "fallback" if _FALLBACK.fullmatch(flag) else flag)] += count
    bad = min(asked, sum(sums[name] for name in BAD))
    order = (*SPENT, *KINDS, *sorted(sums.keys() - {*SPENT, *KINDS}))
    return {"asked": asked, "bad": bad} | {name: round(sums[name], 8) for name in order if sums[name]}


def total(section: Mapping[str, Counts]) -> tuple[float, float]:
    return sum(row["bad"] for row in section.values()), sum(row["asked"] for row in section.values())


def described(counts: Counts) -> str:
    """Return in words what a role did wrong: `8 of 20 replies are bad (40%): 6 malformed, 2 errors; 3 cut off`."""
    parts = [[f"{counts[k]:.0f} {k.replace('_', ' ')}" for k in group if counts.get(k)] for group in (BAD, WHY)]
    if counts.get("fallback"):
        parts[1].append(f"{counts['fallback']:.0f} results from a fallback")
    reasons = "; ".join(", ".join(part) for part in parts if part)
    share = counts["bad"] / counts["asked"]
    bad = f"{counts['bad']:.0f} of {counts['asked']:.0f} replies are bad ({share:.0%})"
    return f"{bad}: {reasons}" if reasons else bad


def remarks(section: Mapping[str, Counts], warn: float | None, most: float | None) -> Iterator[str]:
    """Yield a line for each role of `by_role` that did something wrong, and one `error: ` where figures are no result.

    A line begins with `warning: ` above the share `warn` of bad requests, else `note: `; above `most` it is an error.
    """
    shares = {role: row["bad"] / row["asked"] for role, row in section.items()}
    for role, share in shares.items():
        if share:
            level = "warning" if warn is not None and share > warn else "note"
            yield f"{level}: {role}: {described(section[role])}"
    if most is not None and (over := [f"{role} ({share:.0%})" for role, share in shares.items() if share > most]):
        yield (
            f"error: more bad replies than run.max_bad_replies={most:g} allows: {', '.join(over)}. Rows and metrics "
            "are written, but hardly show what the method can do; traces.jsonl has the replies. Try another model or "
            "prompt, or run.max_bad_replies=null to accept them"
        )


def is_error(lines: Iterable[str]) -> bool:
    return any(line.startswith("error: ") for line in lines)
