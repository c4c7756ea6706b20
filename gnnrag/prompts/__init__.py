"""Prompts: YAML package data, loaded and rendered strictly."""

from gnnrag.prompts.load import Prompt, load_prompt

__all__ = ["Prompt", "load_prompt"]
