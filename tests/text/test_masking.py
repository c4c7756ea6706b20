from __future__ import annotations

from gnnrag.roles.router import MASK, mask_names
from tests.helpers.each import each


@each(
    "text, masked",
    [
        ("Who is the father of Otto II, Count of Guelders?", "Who is the father of #, #?"),
        ("Where was the director of The Seventh Seal born?", "Where was the director of # born?"),
        ("Alfred Hitchcock's wife came from a city", "#'s wife came from a city"),
        ("Hitchcock’s wife", "#'s wife"),
        ("Which city was it?", "Which city was it?"),
        ("Summarise the letters to Anna.", "Summarise the letters to #"),
        ("Are Marie Curie and Pierre Curie related?", "Are # and # related?"),
        ("Is the Bank of the Rhine a bank?", "Is the # a bank?"),
        ("What do I need?", "What do I need?"),
        ("Thames bridges", "Thames bridges"),
        ("Où est Île de la Cité ?", "Où est # ?"),
        ("who wrote emma", "who wrote emma"),
        ("", ""),
    ],
)
def test_names_are_masked(text: str, masked: str) -> None:
    assert mask_names(text).replace(MASK, "#") == masked
