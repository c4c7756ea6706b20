"""An answer, its evidence and how it was found, for a person to read."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill, shorten
from typing import Any

from gnnrag.common.untrusted import one_line
from gnnrag.index.index import Index
from gnnrag.run.answers import citations, where
from gnnrag.session import Session
from gnnrag.text.sentences import excerpt
from gnnrag.types import Prediction

PAD = " " * 6


def as_text(prediction: Prediction, session: Session, index: Index) -> str:
    """Return an answer for a person to read."""
    if prediction.error:
        return f"failed: {prediction.error}"
    lines = [f"Answer: {prediction.answer or '(the passages do not say)'}", ""]
    chain = next((e["text"] for e in session.events if e["event"] == "chain"), "")
    if chain:
        lines += [
            "Chain (in brackets: where the pool had it, before promotion)",
            *(f"  {c}" for c in chain.splitlines()),
            "",
        ]
    lines += [route_line(e) for e in session.events if e["event"] in ("route", "sufficiency")]
    lines.append("Queries")
    kinds = {"question": "the question", "fast": "fast thought", "slow": "slow thought"}
    for event in session.events:
        if event["event"] == "query":
            found = event["ranking"]["ids"][:3]  # of passages, or of graph hits, which are named by their ids
            top = one_line("; ".join(index.lookup([i])[0].title if i in index.position else i for i in found))
            kind = kinds.get(event["kind"], event["kind"]) + (f" to {event['retriever']}" if event["retriever"] else "")
            lines.append(f"  round {event['round']}, {kind}: {event['text']}\n      found: {top}")
    lines += ["", *evidence_lines(prediction, session, index)]
    usage = prediction.usage
    lines.append(
        f"\nretrievals: {usage['retriever_calls']}, LLM calls: {usage['llm_calls']}, {prediction.seconds:.2f} s"
    )
    return "\n".join(lines)


def evidence_lines(prediction: Prediction, session: Session, index: Index) -> list[str]:
    """Return the passages that the reader saw, numbered as citations are, each around the sentence that matters."""
    answer = next((e for e in session.events if e["event"] == "answer"), {})
    asked = next((e["text"] for e in session.events if e["event"] == "query"), "")
    rows, support, lines = citations(session.events, index), answer.get("support", ()), ["Evidence"]
    for number, passage in enumerate(index.lookup(prediction.context), start=1):
        said = " ".join(row["sentence"] for row in rows if row["passage"] == passage.id)
        is_read = passage.id in support
        wanted = said or f"{prediction.answer if is_read else ''} {asked}"
        lines.append(f" {'*' if is_read else ' '}[{number}] {one_line(passage.title)} ({where(passage)})")
        if shown := excerpt(passage.text, wanted):
            lines.append(fill(shown, 110, initial_indent=PAD, subsequent_indent=PAD))
    if support:
        lines.append("\n * the answer was read from here")
    doubtful = [each["sentence"] for each in answer.get("citations", ()) if not each["supported"]]
    if doubtful:
        lines += ["\nNot borne out by the passages that they name:", *(f"  - {one_line(each)}" for each in doubtful)]
    if others := [row for row in rows if not row["supported"] and row["sentence"] not in doubtful]:
        lines += ["\nNamed, but does not bear it out:"]
        lines += [f"  - {row['place']}: {one_line(row['sentence'])}" for row in others]
    return lines


def route_line(event: dict[str, Any]) -> str:
    """Return what a routing method decided."""
    if event["event"] == "sufficiency":
        found = "suffices" if event["enough"] else "does not suffice: on to the multi_hop route"
        return f"Flat evidence {found} ({event['check']}: {event['value']:.2f})\n"
    shares = ", ".join(f"{name} {p:.2f}" for name, p in event["probabilities"].items())
    return f"Route: {event['route']} by rule {event['rule']} ({shares})\n"


def reason_lines(reasons: Sequence[dict[str, Any]], index: Index) -> list[str]:
    """Return the paths for a person to read."""
    lines = ["", "Paths behind the evidence (how much the score leans on each)"] if reasons else []
    shown = None
    for reason in reasons:
        if reason["id"] != shown:
            shown = reason["id"]
            lines.append(f"  {one_line(index.lookup([shown])[0].title)} ({one_line(shown)}), asked: {reason['query']}")
        path = " -- ".join(shorten(step, 80, placeholder=" ...") for step in reason["steps"])
        lines.append(fill(f"{reason['score']:.3f}  {path}", 110, initial_indent=PAD, subsequent_indent=PAD * 2))
    return lines
