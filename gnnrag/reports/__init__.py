"""From a grid of runs to a table: tables of papers, retrievers side by side, runs over folds."""
