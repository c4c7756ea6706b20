"""Multi-hop question answering over graphs. Torch, faiss, spaCy and LLM clients are imported where first used.

from gnnrag import Index
index = Index.build("papers/")
print(index.ask("Who ...?"))
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gnnrag.api import Index as Index
    from gnnrag.api import Results as Results
    from gnnrag.api import SearchHit as SearchHit
    from gnnrag.api import evaluate as evaluate
    from gnnrag.hub import from_pretrained as from_pretrained
    from gnnrag.parts import part as part
    from gnnrag.run.answers import Answer as Answer

_PUBLIC = {
    "Index": "gnnrag.api",
    "evaluate": "gnnrag.api",
    "Results": "gnnrag.api",
    "SearchHit": "gnnrag.api",
    "Answer": "gnnrag.run.answers",
    "from_pretrained": "gnnrag.hub",
    "part": "gnnrag.parts",
}


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gnnrag' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
