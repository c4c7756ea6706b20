from __future__ import annotations

import pytest

from gnnrag.cluster.grid import expand, seconds_of, split_values
from gnnrag.errors import ConfigError
from tests.helpers.each import each


@each(
    "text, parts",
    [
        ("a", ["a"]),
        ("a, b", ["a", "b"]),
        ("[a,b],[c]", ["[a,b]", "[c]"]),
        ("{x: [1,2], y: 3},4", ["{x: [1,2], y: 3}", "4"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("'it, [', x", ["'it, ['", "x"]),
        ("", [""]),
    ],
)
def test_commas_outside_of_brackets_and_quotes_separate(text: str, parts: list[str]) -> None:
    assert split_values(text) == parts


@each("text", ["[a,b", "a],b", '"a,b', "a,,b", ",a", "a,"])
def test_what_is_left_open_or_empty_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"counterpart|nothing between"):
        split_values(text)


def test_the_last_axis_is_the_fastest_and_labels_name_what_varies() -> None:
    points = expand(["method=bdtr,single", "retriever.parts=[bm25,chg]", "seed=0,1"])
    assert [p.label for p in points] == ["bdtr/seed=0", "bdtr/seed=1", "single/seed=0", "single/seed=1"]
    assert points[2].overrides == ("method=single", "retriever.parts=[bm25,chg]", "seed=0")
    assert [p.label for p in expand([])] == [""]
    assert [p.label for p in expand(["data.limit=5"])] == [""]


@each("overrides, says", [(["seed=0", "seed=1"], "seed=a,b"), (["seed=1,1"], "twice"), (["x"], "key=value")])
def test_a_key_or_value_given_twice_is_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        expand(overrides)


def test_durations() -> None:
    assert [seconds_of(text) for text in ("90m", "2h", "1h30m", "45s", "1.5h")] == [5400, 7200, 5400, 45, 5400]
    for text in ("90", "2 h", "h", "0s", "-5m", "1h30"):
        with pytest.raises(ConfigError, match=r"duration|longer"):
            seconds_of(text)
