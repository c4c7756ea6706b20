"""A server of indexes: an API that OpenAI's clients speak, REST, MCP, and a page to ask in (docs/documents.md)."""
