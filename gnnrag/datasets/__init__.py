"""Benchmarks and people's own documents, loaded into passages and questions (`base.load_dataset`).

Imports nothing itself: the child process that reads documents is started often and needs few of these modules.
"""
