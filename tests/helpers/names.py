"""The names of all parts of the package."""

from gnnrag.config import ROLES as ROLES
from gnnrag.parts import has, names

METHODS, RETRIEVERS = names("method"), names("retriever")


def forms(role: str) -> list[str]:
    """Return the forms of a role."""
    return [form for form in ("prompted", "offline", "tuned", "oracle") if has("role", f"{role}.{form}")]
