from __future__ import annotations

import json
import re

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.llm.base import wants_small
from gnnrag.llm.openvino import pattern_of
from gnnrag.parts import build
from gnnrag.roles.prompting import Prompter


@pytest.mark.parametrize(
    "model, expected",
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", True),
        ("Qwen/Qwen2.5-1.5B-Instruct", True),
        ("Qwen2.5-7B-Instruct-1M", False),  # 1M is its context
        ("meta-llama/Llama-3.3-70B", False),
        ("135M/of/gpt-4o-mini", False),  # the folder is not the model
        ("gpt-4o-mini", False),
    ],
)
def test_the_name_tells_the_size(model: str, expected: bool) -> None:
    assert wants_small("auto", model) is expected
    assert not wants_small("full", model) and wants_small("small", model) and wants_small("auto", "mine", 5e8)


def test_a_role_asks_in_the_variant_of_its_model() -> None:
    settings = load_config(
        EvaluateConfig, None, ["llm.model=SmolLM2-135M", "llm.base_url=http://127.0.0.1:9/v1"]
    ).llm.part
    backend = build("llm", settings)
    assert Prompter("verifier", backend, "verifier").prompt.name == "verifier:small"
    assert Prompter("verifier", backend, "verifier", prompt="verifier").prompt.name == "verifier", "as it was told"
    assert Prompter("search", backend, "agent_search_r1", raw=True).prompt.name == "agent_search_r1"


def test_openvino_is_told_which_names_may_lack_and_how_short_a_text_may_be() -> None:
    text = {"type": "string", "minLength": 3, "maxLength": 50}
    schema = {"type": "object", "properties": dict.fromkeys("abc", text), "required": ["a", "c"]}
    for held, whole in (("abc", True), ("ac", True), ("ab", False), ("bc", False), ("acb", False)):
        for said, long in (("abc", True), ("a b c d", True), ("ab", False)):
            assert bool(re.fullmatch(pattern_of(schema), json.dumps(dict.fromkeys(held, said)))) is (whole and long)
