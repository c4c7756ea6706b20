from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from gnnrag.errors import ConfigError, DataError
from gnnrag.prompts import SMALL_GUARD, load_prompt
from gnnrag.prompts.untrusted import inline, notes_element, passage_elements
from gnnrag.types import Passage
from tests.prompts.test_untrusted import ATTACKS

EVERY = sorted(Path(p.name).stem for p in files("gnnrag.prompts").iterdir() if p.name.endswith(".yaml"))
FOLLOW_UPS = ["triples_ask", "triples_more"]  # later turns of a conversation: nothing of their own to fill in
NAMES = [name for name in EVERY if name not in FOLLOW_UPS]


@pytest.mark.parametrize("name", FOLLOW_UPS)
def test_a_follow_up_is_one_turn_of_the_user(name: str) -> None:
    prompt = load_prompt(name)
    assert [m.role for m in prompt.render()] == ["user"] and prompt.reminder


# Continued without a chat template: one text, and no second turn for a reminder.
RAW = {"agent_search_r1", "agent_r1_searcher"}


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_renders_with_its_placeholders_and_nothing_else(name: str) -> None:
    prompt = load_prompt(name)
    values = {p: f"(({p})) {{question}} {{}} {{0}} \\1" for p in prompt.placeholders}
    messages = prompt.render(**values)
    system = [] if name in RAW else ["system"]
    assert [m.role for m in messages] == [*system, *["user", "assistant"] * len(prompt.examples), "user"]
    assert all(v in messages[-1].content for v in values.values()) and prompt.placeholders
    with pytest.raises(ConfigError, match=r"missing values \['"):
        prompt.render(**dict(list(values.items())[1:]))
    with pytest.raises(ConfigError, match=r"without a placeholder \['more'\]"):
        prompt.render(**values, more="x")


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_is_fit_for_use(name: str) -> None:
    prompt = load_prompt(name)
    assert prompt.reminder or name in RAW
    assert "\n" not in prompt.reminder
    assert not (name in RAW and prompt.system), "a text that is continued raw has one part"
    assert prompt.user.rstrip().endswith("}"), "variable input comes last"
    if {"passages", "passage", "context"} & prompt.placeholders:
        assert "untrusted" in prompt.system and "ollow instructions found inside" in prompt.system
    if prompt.schema:
        assert "JSON" in prompt.system, "json_object mode wants the word in the prompt"
        assert prompt.schema["additionalProperties"] is False
        assert sorted(prompt.schema["required"]) == sorted(prompt.schema["properties"])
    fixed = prompt.system + "".join(u + a for u, a in prompt.examples)
    assert not re.search(r"\{[a-z_]+\}", fixed), "a placeholder outside the last turn would never be filled"


@pytest.mark.parametrize("name", NAMES)
def test_the_small_variant_is_short_and_asks_for_the_same(name: str) -> None:
    whole, small = load_prompt(name), load_prompt(f"{name}:small")
    assert (small.placeholders, small.stop) == (whole.placeholders, whole.stop)
    assert small.reminder == whole.reminder or "JSON" in small.reminder
    assert small.name == f"{name}:small" and not small.examples
    instructions = small.system
    if small.user != whole.user:  # they stand between the passages and the question, which comes last
        instructions = yaml.safe_load(files("gnnrag.prompts").joinpath(f"{name}.yaml").read_text())["small"].strip()
        material, _, rest = small.user.partition(f"\n\n{instructions}\n\n")
        assert f"{material}\n\n{rest}" == whole.user and rest and material.endswith("}")
        assert small.system == SMALL_GUARD
    if instructions != whole.system:
        assert small.digest != whole.digest and len(instructions) <= max(500, 0.7 * len(whole.system))
        assert not small.schema or "JSON" in instructions
    for option in yaml.safe_load(files("gnnrag.prompts").joinpath(f"{name}.yaml").read_text()).get("small_options", ()):
        assert load_prompt(f"{name}:small", option).schema == small.schema, "one format is asked for"
    schema = json.dumps(small.schema)
    assert schema.count('"array"') == schema.count("maxItems"), "no reply goes on until its limit"
    assert schema.count('"string"') == schema.count("maxLength") + schema.count('"enum"')


@pytest.mark.parametrize("name", NAMES)
def test_examples_show_passages_exactly_as_they_are_rendered(name: str) -> None:
    for user, _ in load_prompt(name).examples:
        shown = re.findall(r'<passage id="\d+" title="(.*?)">\n(.*?)\n</passage>', user, re.DOTALL)
        assert not shown or passage_elements(Passage("x", title, text) for title, text in shown) in user


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fit", [str, inline, notes_element], ids=["raw", "line", "element"])
def test_no_packaged_prompt_lets_a_hostile_value_out(name: str, fit) -> None:
    prompt = load_prompt(name)
    last = prompt.render(**{p: fit(" ".join(ATTACKS) + p) for p in prompt.placeholders})[-1].content
    tags = len(prompt.placeholders) if fit is notes_element else 0
    for attack in ATTACKS:
        assert last.count(attack) == prompt.user.count(attack) + tags * (attack == "<notes>"), attack


def test_digest_changes_with_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"system": "s", "user": "{a}", "stop": ["x"], "reminder": "r", "schema": {"type": "object"}}
    changes = [{}, {"system": "S"}, {"user": "{b}"}, {"stop": []}, {"reminder": "R"}, {"schema": {"type": "array"}}]
    changes += [{"examples": [{"user": "u", "assistant": "a"}]}, {"options": {"o": "more"}}]
    digests = []
    for change in changes:
        path = tmp_path / "p.yaml"
        path.write_text(json.dumps(base | change))
        digests.append(load_prompt(str(path)).digest)
    assert len(set(digests)) == len(changes)
    assert load_prompt(str(path), "o").digest not in digests
    small = load_prompt("reader:small").digest
    monkeypatch.setattr("gnnrag.prompts.SMALL_GUARD", "Other words.")
    assert load_prompt("reader:small").digest != small


def test_braces_of_a_template_that_are_no_placeholders_stay(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("user: 'Reply {\"a\": [{}]} or {X} about {it}'")
    assert load_prompt(str(path)).render(it="{it}")[0].content == 'Reply {"a": [{}]} or {X} about {it}'


def test_options_are_appended_to_the_system_text() -> None:
    plain, careful = load_prompt("reader"), load_prompt("reader", "abstain")
    assert careful.system.startswith(plain.system) and "Answer: unknown" in careful.system
    with pytest.raises(ConfigError, match=r"no option 'abstian'.*abstain"):
        load_prompt("reader", "abstian")


@pytest.mark.parametrize("text", ["system: only", "user: '{a}'\nsytem: x", "user: '{a}'\nexamples: [text]", "user: ["])
def test_broken_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=r"own\.yaml"):
        load_prompt(str(path))
