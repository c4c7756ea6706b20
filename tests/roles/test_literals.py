from __future__ import annotations

from gnnrag.roles.parsing import objects, python_literal
from tests.helpers.each import each


@each(
    "text, expected",
    [
        ('{"a": ["b}", "{c"]}', {"a": ["b}", "{c"]}),
        ("Here: {'a': ['b}', \"it's\"], 'n': None}", {"a": ["b}", "it's"], "n": None}),
        ('{"a": null, "t": true}', {"a": None, "t": True}),
        ("{'a': ('x', -1)}", {"a": ("x", -1)}),
        ('{"a": [["x", "y", "z"], ["x", "y", "to', {"a": [["x", "y", "z"], ["x", "y"]]}),
        ('{"a": ["x", "y", "to', {"a": ["x", "y"]}),
        ('{"a": [["x", "y", "z"]', {"a": [["x", "y", "z"]]}),
        ("{'a': ['x', 'to", {"a": ["x"]}),
        ('{"a": ["x",]}', {"a": ["x"]}),
        ("{a: [x]}", {"a": ["x"]}),
    ],
)
def test_first_object(text, expected):
    assert next(objects(text)) == expected


@each(
    "text",
    ["__import__('os').getcwd()", "{'a': open('x')}", "{**{}}", "f'{1}'", "a", "1 +", "[" * 60],
)
def test_only_literals_are_read(text):
    assert python_literal(text) is None


def test_no_object_no_result():
    assert list(objects("nothing { here")) == [] or all(isinstance(o, dict) for o in objects("nothing { here"))
    assert list(objects("{" * 3000)) == []
