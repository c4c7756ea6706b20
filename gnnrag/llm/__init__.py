"""Language-model backends: one per file, all behind `gnnrag.llm.base.Backend`."""
