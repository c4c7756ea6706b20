"""Own documents: files of many formats, read and cut into passages in a child process (`child.Reader`)."""

# Read by kreuzberg, by their markup (`readers.BY_MARKUP`) or their nodes; and read by readers of our own.
SUFFIXES = frozenset(
    (
        *(".docx", ".epub", ".htm", ".html", ".ipynb", ".ods", ".odt"),
        *(".pdf", ".pptx", ".rst", ".rtf", ".xlsx"),
        *(".csv", ".eml", ".jsonl", ".md", ".tsv", ".txt"),
    )
)
