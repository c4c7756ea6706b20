"""Benchmarks and people's own documents, loaded into passages and questions."""

from gnnrag.datasets.base import Dataset, fingerprint, load_dataset, load_passages, load_questions
from gnnrag.datasets.chunk import Chunking

__all__ = ["Chunking", "Dataset", "fingerprint", "load_dataset", "load_passages", "load_questions"]
