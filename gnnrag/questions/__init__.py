"""Multi-hop questions made from paths of a knowledge graph, by template or by a language model."""
