"""What other tools read and write: TREC files, BEIR folders, graphs, LangChain's retrievers."""
