"""Views of GraphSearch: cut to a size, and as they stand in prompts."""

from __future__ import annotations

from gnnrag.llm.base import estimate_tokens
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.roles.searching import View


def cut_view(view: View, limit: int) -> View:
    """Return a view of at most `limit` estimated tokens.

    What goes first are passages, from the end of their list, then relations, then entities.
    """
    passages, facts = list(view.passages), list(view.facts)
    sizes = {id(x): estimate_tokens(x.content) for x in passages}
    sizes |= {id(x): estimate_tokens(x.text or x.id) for x in facts}
    spare = sum(sizes[id(x)] for x in [*passages, *facts]) - limit
    relations = [fact for fact in facts if fact.kind != "entity"]
    entities = [fact for fact in facts if fact.kind == "entity"]
    for group in (passages, relations, entities):
        while spare > 0 and group:
            spare -= sizes[id(group.pop())]
    kept = {id(fact) for fact in [*relations, *entities]}
    return View(tuple(passages), tuple(fact for fact in facts if id(fact) in kept))


def render_view(view: View) -> Shown:
    """Return the passages of a view as elements and its entities and relations as notes, a line each."""
    parts = [passage_elements(view.passages)] if view.passages or not view.facts else []
    if view.facts:
        parts.append(notes_element("\n".join(f"{fact.kind}: {inline(fact.text or fact.id)}" for fact in view.facts)))
    return together(parts, "\n\n")
