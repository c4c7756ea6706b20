"""Answer and retrieval metrics, intervals, and the report of a run. Scoring reads records only; it never predicts."""
