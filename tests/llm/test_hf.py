"""The `hf` backend on random models made on the spot: batches, sampling, stops, adapters, errors."""

from __future__ import annotations

import asyncio
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ArtefactError, ConfigError, LLMError
from gnnrag.llm.base import ContextLengthError, Message, Reply, Request
from gnnrag.llm.hf import HF, HFModel
from gnnrag.parts import build
from tests.helpers.local_backends import ask as outcomes
from tests.helpers.local_backends import request, texts_from_threads
from tests.helpers.tiny_model import make_tiny_adapter, make_tiny_model

pytestmark = pytest.mark.slow

TEXTS = [
    "Where was the author born?",
    "Who wrote it?",
    "Name the river. " * 12,
    "1 + 1 =",
    "The castle of the town stands on a hill above the harbour; who built it, and when?",
]


def ask(backend: HF, *requests: Request) -> list[Reply]:
    async def go() -> list[Reply]:
        return await asyncio.gather(*(backend.generate(r) for r in requests))

    return asyncio.run(go())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("hf"), lively=True)


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_adapter(folder, tmp_path_factory.mktemp("adapter"))


def hf(folder: Path, **settings: Any) -> HF:
    return build("llm", {"name": "hf", "model": str(folder), "device": "cpu", **settings})


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the batches that were answered."""
    found: list[int] = []
    generate = HFModel.generate

    def counted(self: HFModel, jobs: Any, prompts: Any) -> list[Reply]:
        found.append(len(jobs))
        return generate(self, jobs, prompts)

    monkeypatch.setattr(HFModel, "generate", counted)
    return found


def test_a_batch_answers_as_one_by_one_would(folder: Path, sizes: list[int]) -> None:
    together, alone = hf(folder, max_batch=8), hf(folder, max_batch=1)
    requests = [request(t, max_tokens=n) for t, n in zip(TEXTS, (12, 5, 20, 1, 9), strict=True)]
    batch, single = ask(together, *requests), ask(alone, *requests)
    assert [(r.text, r.finish_reason) for r in batch] == [(r.text, r.finish_reason) for r in single]
    assert len({r.text for r in batch}) > 1
    assert [r.completion_tokens for r in batch] == [12, 5, 20, 1, 9]
    assert sizes == [5, 1, 1, 1, 1, 1]


def chat_inputs(folder: Path, text: str) -> Any:
    from transformers import AutoTokenizer

    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return AutoTokenizer.from_pretrained(folder).apply_chat_template(
        chat, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )


def greedy(folder: Path, text: str, length: int) -> list[int]:
    """Return the tokens that transformers itself generates."""
    from transformers import AutoModelForCausalLM

    inputs = chat_inputs(folder, text)
    out = AutoModelForCausalLM.from_pretrained(folder).generate(**inputs, max_new_tokens=length, do_sample=False)
    return out[0, inputs["input_ids"].shape[1] :].tolist()


def test_it_is_what_transformers_generates(folder: Path) -> None:
    from transformers import AutoTokenizer

    (reply,) = ask(hf(folder), request(TEXTS[0]))
    tokens = greedy(folder, TEXTS[0], 12)
    assert reply.text == AutoTokenizer.from_pretrained(folder).decode(tokens, skip_special_tokens=True)
    length = chat_inputs(folder, TEXTS[0])["input_ids"].shape[1]
    assert (reply.prompt_tokens, reply.completion_tokens, reply.model) == (length, 12, folder.name)
    assert not reply.is_estimated and reply.cost == 0


def test_a_presence_penalty_counts_tokens_of_the_reply_once_each(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    penalty = -1.5  # negative: this model does not repeat itself of its own accord
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = chat_inputs(folder, TEXTS[0])["input_ids"]
    start = ids.shape[1]
    for _ in range(12):
        with torch.inference_mode():
            scores = model(ids).logits[0, -1].clone()
            scores[list(set(ids[0, start:].tolist()))] -= penalty
            ids = torch.cat([ids, scores.argmax().reshape(1, 1)], 1)
    plain, penalised = hf(folder), hf(folder, presence_penalty=penalty)
    (reply,), (before,) = ask(penalised, request(TEXTS[0])), ask(plain, request(TEXTS[0]))
    assert reply.text == tokenizer.decode(ids[0, start:], skip_special_tokens=True) != before.text
    assert penalised.identity["presence_penalty"] == penalty


def test_sampling_depends_on_the_request_alone(folder: Path) -> None:
    backend = hf(folder, temperature=1.0)
    mixed = [request(TEXTS[0]), request(TEXTS[0], temperature=0.0), request(TEXTS[1]), request(TEXTS[0], seed=1)]
    first, greedy, other, seeded = ask(backend, *mixed)
    assert len({first.text, greedy.text, seeded.text}) == 3
    assert ask(backend, mixed[3])[0].text == seeded.text and ask(backend, mixed[0])[0].text == first.text
    assert ask(hf(folder), request(TEXTS[0]))[0].text == greedy.text
    cold = hf(folder, temperature=1e-6)
    assert ask(cold, request(TEXTS[0]))[0].text == greedy.text, "all chance is on the most likely token"
    assert other.text != first.text


def test_sampled_frequencies_follow_the_model(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    backend = hf(folder, temperature=2.5, max_batch=200, batch_tokens=10**6)
    replies = ask(backend, *(request("a", max_tokens=1, seed=s) for s in range(400)))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        chance = torch.softmax(model(**chat_inputs(folder, "a")).logits[0, -1] / 2.5, -1)
    kept, tokens = chance.sort(descending=True)
    texts = [tokenizer.decode([t]) for t in tokens.tolist()]
    likely = {t for t in texts[:20] if t.isascii()}  # bytes that are no character of their own all read alike
    expected = float(sum(p for p, t in zip(kept, texts, strict=True) if t in likely) / kept.sum())
    share = sum(r.text in likely for r in replies) / 400
    assert 0.05 < expected < 0.95
    assert abs(share - expected) < 4 * (expected * (1 - expected) / 400) ** 0.5 + 0.01


def test_stop_strings_end_a_reply(folder: Path) -> None:
    backend = hf(folder, max_batch=8)
    (whole,) = ask(backend, request(TEXTS[0], max_tokens=30))
    stop = whole.text[8:11]
    cut, other = ask(backend, request(TEXTS[0], max_tokens=30, stop=(stop, "never")), request(TEXTS[1], max_tokens=30))
    assert cut.text == whole.text[: whole.text.index(stop)] and cut.finish_reason == "stop"
    assert cut.completion_tokens < 30 == other.completion_tokens and other.finish_reason == "length"


def test_the_end_token_ends_a_reply(folder: Path, tmp_path: Path) -> None:
    """A token that the model says is declared an end: replies stop there, each for itself."""
    tokens = greedy(folder, TEXTS[0], 12)
    token = tokens[3]
    other = shutil.copytree(folder, tmp_path / "ends")
    settings = json.loads((other / "generation_config.json").read_text()) | {"eos_token_id": [2, token]}
    settings |= {"repetition_penalty": 9.0, "do_sample": True, "temperature": 5.0}
    (other / "generation_config.json").write_text(json.dumps(settings))
    ended, cut = ask(hf(other), request(TEXTS[0]), request(TEXTS[0], max_tokens=1))
    assert (ended.finish_reason, ended.completion_tokens) == ("stop", tokens.index(token) + 1)
    assert (cut.finish_reason, cut.completion_tokens) == ("length", 1)


def test_a_raw_request_continues_its_text(folder: Path) -> None:
    from transformers import AutoTokenizer

    raw = Request((Message("user", "Where "), Message("user", "was")), max_tokens=4, raw=True)
    (reply,) = ask(hf(folder), raw)
    assert reply.prompt_tokens == len(AutoTokenizer.from_pretrained(folder)("Where was")["input_ids"])
    plain = hf(folder, chat="plain")
    (joined,) = ask(plain, request("was", max_tokens=1))
    assert joined.prompt_tokens == len(AutoTokenizer.from_pretrained(folder)("Be brief.\n\nwas")["input_ids"])


@pytest.mark.parametrize(
    "text, kind, message",
    [
        ("word " * 100, ContextLengthError, "12 of reply do not fit into 100"),
        ("half a pair: \ud83d", LLMError, ""),  # what JSON may hold, and UTF-8 may not
    ],
)
def test_a_prompt_that_cannot_be_answered_costs_nobody_else(folder: Path, text, kind, message) -> None:
    backend = hf(folder, context=100)

    refused, answered = outcomes(backend, request(text), request("a"))
    assert isinstance(refused, kind) and message in str(refused) and folder.name in str(refused)
    assert isinstance(answered, Reply) and ask(backend, request("b"))[0].prompt_tokens, "the model goes on"


def test_a_long_prompt_leaves_less_for_the_reply(folder: Path) -> None:
    (reply,) = ask(hf(folder, context=300), request("a", max_tokens=400))
    assert reply.prompt_tokens + reply.completion_tokens <= 300


def test_batches_stay_within_their_limits(folder: Path, sizes: list[int]) -> None:
    backend = hf(folder, max_batch=3, batch_tokens=150)
    replies = ask(backend, *(request(t) for t in TEXTS))
    assert all(r.completion_tokens == 12 for r in replies)
    assert sum(sizes) == 5 and max(sizes) <= 3 and len(sizes) >= 2


def test_several_event_loops_and_threads(folder: Path) -> None:
    backend = hf(folder)
    found = texts_from_threads(backend)
    assert len(found) == 3 and len(set(found)) == 1


# ------------------------------------------------------------------------------------------------------ adapters
def test_an_adapter_answers_as_its_merged_model(folder: Path, adapter: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    merged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), adapter).merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "merged")
    requests = [request(t) for t in TEXTS]
    plain = [r.text for r in ask(hf(folder), *requests)]
    texts = {
        "merged folder": ask(hf(tmp_path / "merged"), *requests),
        "adapter setting": ask(hf(folder, adapter=str(adapter)), *requests),
        "adapter as model": ask(hf(adapter), *requests),
    }
    expected = [r.text for r in texts["merged folder"]]
    assert all([r.text for r in found] == expected for found in texts.values()), texts
    assert expected != plain


def test_pickled_weights_of_an_adapter_are_not_loaded(folder: Path, adapter: Path, tmp_path: Path) -> None:
    pickled = shutil.copytree(adapter, tmp_path / "pickled")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with pytest.raises(ConfigError, match=r"no adapter_model\.safetensors"):
        hf(folder, adapter=str(pickled))


def test_an_adapter_with_added_tokens_says_how_to_merge_it(folder: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, base = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    tokenizer.add_tokens(["<hop>", "</hop>"], special_tokens=True)
    base.resize_token_embeddings(len(tokenizer) + 64)
    kept = LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"], task_type="CAUSAL_LM")
    get_peft_model(base, kept).save_pretrained(tmp_path / "own")
    tokenizer.save_pretrained(tmp_path / "own")
    (error,) = outcomes(hf(folder, adapter=str(tmp_path / "own")), request("a"))
    assert isinstance(error, ArtefactError) and "merge_and_unload()" in str(error)


def test_adapters_share_one_base_and_do_not_mix(folder: Path, adapter: Path, tmp_path: Path, sizes: list[int]) -> None:
    second = make_tiny_adapter(folder, tmp_path / "second", seed=5)
    backends = [hf(folder, adapter=a, max_batch=5) for a in (None, str(adapter), str(second))]
    assert len({id(b.thread) for b in backends}) == 1

    async def go() -> list[Reply]:
        return await asyncio.gather(*(b.generate(request(t)) for t in TEXTS[:2] for b in backends))

    mixed = [r.text for r in asyncio.run(go())]
    assert sizes == [2, 2, 2], "one batch for each adapter"
    alone = [ask(b, request(t))[0].text for t in TEXTS[:2] for b in backends]
    assert mixed == alone and len(set(mixed[:3])) == 3


def test_what_is_trained_in_place_is_another_model(folder: Path, adapter: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(adapter, tmp_path / "copy")
    before = hf(folder, adapter=str(copy))
    assert before.identity["weights"] == hf(folder, adapter=str(adapter)).identity["weights"], "moved"
    make_tiny_adapter(folder, copy, seed=9)
    after = hf(folder, adapter=str(copy))
    assert after.identity["weights"] != before.identity["weights"]
    json.dumps(dict(after.identity))
    assert ask(after, request("a"))[0].text != ask(hf(folder, adapter=str(adapter)), request("a"))[0].text


# --------------------------------------------------------------------------------------------------------- schemas
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 6}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}


@pytest.mark.skipif(find_spec("xgrammar") is None, reason="xgrammar is not installed; `make test-vllm` has it")
def test_replies_are_held_to_a_schema(folder: Path) -> None:
    backend = hf(folder, temperature=1.0)
    free, *held = ask(
        backend, request("a"), *(request(t, schema=SCHEMA, max_tokens=60, temperature=h) for t in TEXTS for h in (0, 1))
    )
    for reply in held:
        data = json.loads(reply.text, strict=False)  # xgrammar lets bare control characters pass
        assert data.keys() == {"answer", "sure"} and isinstance(data["sure"], bool) and len(data["answer"]) <= 6
        assert reply.finish_reason == "stop"
    assert not free.text.startswith("{") and backend.identity["schema"] is True


# ---------------------------------------------------------------------------------------------------------- errors
def test_a_damaged_model_fails_once_and_for_all(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "broken")
    next(copy.glob("*.safetensors")).write_bytes(b"not a model")
    backend = hf(copy)

    for found in (outcomes(backend, *map(request, TEXTS)), outcomes(backend, *map(request, TEXTS))):
        assert len({str(e) for e in found}) == 1 and "cannot be loaded (" in str(found[0])


@pytest.mark.parametrize("is_first", [True, False])
def test_an_adapter_that_does_not_fit_leaves_its_base_and_the_others_as_they_were(
    folder: Path, tmp_path: Path, is_first: bool
) -> None:
    wide = make_tiny_model(tmp_path / "wide", width=32, lively=True)
    cut = make_tiny_adapter(wide, tmp_path / "cut")
    (cut / "adapter_model.safetensors").write_bytes(b"cut")
    wrong, damaged = (hf(wide, adapter=str(a)) for a in (make_tiny_adapter(folder, tmp_path / "of-another-base"), cut))
    others = [hf(wide)] + [hf(wide, adapter=str(make_tiny_adapter(wide, tmp_path / "fits")))] * (not is_first)
    before = [ask(backend, request("a"))[0].text for backend in others]
    assert all(backend.thread is wrong.thread for backend in others)
    for backend in (wrong, damaged, wrong):
        with pytest.raises(ArtefactError, match="does not fit the model"):
            ask(backend, request("a"))
    assert [ask(backend, request("a"))[0].text for backend in others] == before


@pytest.mark.parametrize(
    "base", ["", ', "base_model_name_or_path": null}', ', "base_model_name_or_path": "/gone/base"}']
)
def test_an_adapter_without_its_base_says_how_to_give_it(adapter: Path, tmp_path: Path, base: str) -> None:
    copy = shutil.copytree(adapter, tmp_path / "copy")
    (copy / "adapter_config.json").write_text(f'{{"peft_type": "LORA"{base}')
    with pytest.raises(ConfigError, match=r"llm\.model=BASE llm\.adapter"):
        hf(copy)


def test_a_tokenizer_without_a_template_needs_plain_prompts(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "broken")
    (copy / "chat_template.jinja").unlink()
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=r"has no chat template: take a chat model, or set llm\.chat=plain"):
        ask(hf(copy), request("a"))
    assert ask(hf(copy, chat="plain"), request("a"))[0].completion_tokens > 0


def test_a_template_without_a_system_turn(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    copy = shutil.copytree(folder, tmp_path / "broken")
    tokenizer = AutoTokenizer.from_pretrained(copy)
    plain = tokenizer.chat_template
    refusal = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = refusal + plain
    tokenizer.save_pretrained(copy)
    (reply,) = ask(hf(copy), request("a"))
    joined = tokenizer.apply_chat_template([{"role": "user", "content": "Be brief.\n\na"}], add_generation_prompt=True)
    assert reply.prompt_tokens == len(joined["input_ids"])
