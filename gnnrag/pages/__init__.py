"""Self-contained HTML pages of runs and graphs, and what an index holds."""
