"""OpenIE by a language model (HippoRAG, arXiv 2405.14831 and 2502.14802): the names of a passage, then its triples."""

from __future__ import annotations

import json
from typing import Any

from gnnrag.extract.types import Extraction, Triple
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element, passage_element
from gnnrag.roles.gleaning import TriplesConfig
from gnnrag.roles.literals import objects
from gnnrag.roles.parsing import strip_thinking
from gnnrag.roles.prompting import MalformedError, Prompter
from gnnrag.roles.writing import Extracted, TriplesTask
from gnnrag.session import Session

NAMES_KEY, TRIPLES_KEY = "named_entities", "triples"


class OpenIETriples:
    """Two calls for each passage: its named entities, then triples that hold them.

    A passage whose names cannot be read is asked for triples without them; one whose triples cannot be read, or of
    which more than half are not triples, has failed.

    Args:
        backend: the language model.
        config: settings; `prompt` replaces that of the second call.
    """

    config_class = TriplesConfig
    version = 1

    def __init__(self, backend: Backend, config: TriplesConfig | None = None) -> None:
        config = config or TriplesConfig()
        plain = TriplesConfig("", config.temperature, config.max_tokens, config.seed)
        # As the released code does, of a list that was cut off the whole elements are taken.
        self._names = Prompter("triples", backend, plain, "triples_names", keeps_cut=True)
        self._triples = Prompter("triples", backend, config, "triples_openie", keeps_cut=True)
        self.prompters = (self._names, self._triples)

    async def __call__(self, task: TriplesTask, session: Session) -> Extracted:
        """Extract from one passage."""
        passage = {"passage": passage_element(task.passage, 1)}
        types = inline(", ".join(task.types) or "any")
        found = await self._names.ask(session, {**passage, "types": types}, read_names)
        names = found.value or ()
        flags: tuple[str, ...] = ("no_names",) if found.value is None else ()
        listed = notes_element(json.dumps({NAMES_KEY: names}, ensure_ascii=False))
        values = {**passage, "names": listed, "language": inline(task.language)}
        outcome = await self._triples.ask(session, values, read_triples)
        if outcome.value is None:
            return Extracted(None, (*flags, "passage_failed"))
        triples, malformed, seen = outcome.value
        flags += ("records_dropped_fields",) * malformed + ("records_seen",) * seen
        if malformed > 0.5 * seen:
            return Extracted(None, (*flags, "passage_failed"))
        return Extracted(Extraction(names, triples, malformed), flags)


def read_names(reply: str) -> tuple[str, ...]:
    """Return the distinct names of a reply `{"named_entities": [...]}`, in order.

    Raises:
        MalformedError: there is no such list.
    """
    rows = _list(reply, NAMES_KEY)
    names = (str(name).strip() for name in rows if isinstance(name, str | int | float) and not isinstance(name, bool))
    return tuple(dict.fromkeys(name for name in names if name))


def read_triples(reply: str) -> tuple[tuple[Triple, ...], int, int]:
    """Return the distinct triples of a reply `{"triples": [...]}`, how many rows are none, and how many rows there are.

    A row of two or four parts, one that holds null or a list, or an empty head, relation or tail, is no triple.

    Raises:
        MalformedError: there is no such list.
    """
    rows = _list(reply, TRIPLES_KEY)
    kept = [tuple(str(part).strip() for part in row) for row in rows if _is_triple(row)]
    whole: list[Any] = [row for row in kept if all(row)]
    return tuple(dict.fromkeys(whole)), len(rows) - len(whole), len(rows)


def _is_triple(row: Any) -> bool:
    parts = row if isinstance(row, list | tuple) else ()
    return len(parts) == 3 and all(isinstance(p, str | int | float) and not isinstance(p, bool) for p in parts)


def _list(reply: str, key: str) -> list[Any]:
    for data in objects(strip_thinking(reply)):
        value = data.get(key)
        if isinstance(value, list | tuple):
            return list(value)
        if key in data and value is None:
            return []  # a model that finds nothing may say null
    raise MalformedError(f"no object with a list {key!r}")
