"""Word lists of the rules for English text, kept in `lexicon.yaml`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml  # type: ignore[import-untyped]


@cache
def _lists() -> dict[str, Any]:
    text = (files("gnnrag.text") / "lexicon.yaml").read_text("utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def word_set(name: str) -> frozenset[str]:
    """Return the words of a list."""
    return frozenset(_lists()[name].split())


def kind_by_word(name: str) -> dict[str, str]:
    """Return word -> kind of a table, such as `actor` -> `person` in `nouns`."""
    return {word: kind for kind, words in _lists()[name].items() for word in words.split()}


def country_by_name(name: str) -> dict[str, str]:
    """Return name -> country of the table `countries` or `regions`; countries name themselves."""
    return {word: country for country, names in _lists()[name].items() for word in (country, *names)}
