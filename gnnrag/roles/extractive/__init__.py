"""How the offline reader works: the shape of a question, relations and attributes in passages, spans at last."""
