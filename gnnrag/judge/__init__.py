"""Answers judged by a language model: scores beside gold, and pairs beside each other."""
