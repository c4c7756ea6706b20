"""The names of all parts of the package."""

from gnnrag.config import ROLES as ROLES
from gnnrag.parts import find_class, has_class, names


def packaged(kind: str) -> list[str]:
    """Return the names of a kind, without the parts of tests that are imported."""
    return [name for name in names(kind) if find_class(kind, name).__module__.startswith("gnnrag.")]


METHODS, RETRIEVERS = packaged("method"), packaged("retriever")


def forms(role: str) -> list[str]:
    """Return the forms of a role."""
    return [form for form in ("prompted", "offline", "tuned", "oracle") if has_class("role", f"{role}.{form}")]
