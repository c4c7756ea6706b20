"""Own documents: files of many formats, read and cut into passages in a child process (`child.DocumentReader`)."""

# Read by kreuzberg, by their markup (`readers.BY_MARKUP`) or their nodes; and read by readers of our own.
SUFFIXES = frozenset(
    (
        *(".docx", ".epub", ".ipynb", ".ods", ".odt", ".pdf", ".pptx", ".rtf", ".xlsx"),
        *(".csv", ".eml", ".htm", ".html", ".jsonl", ".md", ".rst", ".tsv", ".txt"),
    )
)
