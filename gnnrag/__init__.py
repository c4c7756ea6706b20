"""Multi-hop question answering over graphs. Torch, faiss, spaCy and LLM clients are imported where first used."""

__version__ = "0.1.0"
