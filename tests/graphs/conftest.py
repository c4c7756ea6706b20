"""Fixtures shared with other folders."""

from tests.helpers.shared_data import two_wiki_passages

__all__ = ["two_wiki_passages"]
