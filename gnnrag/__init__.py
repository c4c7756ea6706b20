"""gnnrag: multi-hop question answering over graphs, with trainable parts.

Importing the package is cheap: torch, faiss, spaCy and the LLM clients are imported by the part that needs them,
when it is first used.
"""

__version__ = "0.1.0"
