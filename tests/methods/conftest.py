"""Fixtures: the index of the inline corpus."""

from tests.roles.conftest import index

__all__ = ["index"]
