"""A knowledge base turned into text: articles, descriptions of entities, descriptions of triples (DotRAG, 8.2)."""
