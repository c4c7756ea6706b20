"""The audit behind a router: which classes of questions flat retrieval fails, and which route serves them."""
