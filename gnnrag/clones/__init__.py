"""Copies of a question set under new names: realistic text of any size, in which every question keeps its answer."""
