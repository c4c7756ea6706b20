"""Run one test over a table of cases as one item; a failure names every case that failed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import pytest

Cases = Iterable[Any] | Callable[[], Iterable[Any]]


def each(names: str, cases: Cases) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the decorated test with every case in turn, for tables of which each row alone is not worth an item.

    `names` and `cases` read as in `pytest.mark.parametrize`, without marks; cases that are dear to find are given as a
    function, which is called when the test runs and not when it is collected. What a case writes below `tmp_path` or
    sets through `monkeypatch` is its own; other fixtures are shared by the cases.
    """
    arguments = [name.strip() for name in names.split(",")]
    given = cases if callable(cases) else list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        assert signature.parameters.keys() >= set(arguments), f"{test.__name__} does not take {names}"

        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            rows = [case if len(arguments) > 1 else (case,) for case in (given() if callable(given) else given)]
            assert rows, "a table without cases tests nothing"
            failures = []
            for number, row in enumerate(rows):
                case = dict(zip(arguments, row, strict=True))
                try:
                    with ExitStack() as stack:
                        test(*args, **_own(fixtures, number, stack), **case)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised below, with the other cases
                    shown = (f"{name}={case[name]!r}" for name in arguments)
                    error.add_note(f"case {number}: {', '.join(shown):.300}")
                    failures.append(error)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} cases failed", failures)

        del run.__wrapped__  # or pytest would look for fixtures named as the columns
        left = [value for name, value in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate


def _own(fixtures: dict[str, Any], number: int, stack: ExitStack) -> dict[str, Any]:
    """Give a case its own folder and its own monkeypatch."""
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / f"case{number}"
        own["tmp_path"].mkdir()
    if "monkeypatch" in own:
        own["monkeypatch"] = stack.enter_context(own["monkeypatch"].context())
    return own
