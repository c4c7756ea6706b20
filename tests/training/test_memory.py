"""What a training takes of a GPU's memory: every GPU config against its GPU, and the count against real tensors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnrag.cli.memory import counted, main
from gnnrag.config import load_config
from gnnrag.errors import ConfigError
from gnnrag.training.language.data import Example, TrainLanguageConfig
from gnnrag.training.language.losses import open_language_model, supervised_losses
from gnnrag.training.language.memory import (
    GIB,
    Memory,
    as_on_gpu,
    base_sizes,
    check_fits,
    language_memory,
    micro_batch,
    step_bytes,
)
from gnnrag.training.loop import groups_of
from tests.helpers.each import each
from tests.helpers.tiny_model import make_tiny_model

CONFIGS = sorted(p for p in Path("configs/train").glob("*.yaml") if "80 GB GPU" in p.read_text("utf-8"))
# That of the run it starts from.
BASES = {name: ["model.base=Qwen/Qwen2.5-1.5B-Instruct"] for name in ("thoughts_dpo", "thoughts_grpo")}
# Parameters of the bases, as their pages on the hub state them.
KNOWN = {
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "google/flan-t5-large": 783_150_080,
    "microsoft/deberta-v3-base": 183_831_552,
}


def on_eight(path: Path) -> list[str]:
    """Return the settings that a config's comment gives for eight GPUs."""
    (line,) = re.findall(r"^# 8 of them: (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return [word for word in line.split() if "=" in word]


# GiB that torch had allocated at most on one H200 (tests/benchmarks/bench_gpu.py train; torch 2.11, transformers 5.17):
# while training, and while validation's replies were scored or written.
SEEN = {
    "reader_causal": (8.26, 21.60),
    "verifier_qwen05b": (32.28, 11.20),
    "verifier_qwen7b": (26.09, 34.19),
    "thoughts_dpo": (9.62, 11.59),
    "thoughts_t5": (20.75, 46.58),
    "verifier_deberta": (43.90, 0.0),
}


@pytest.mark.slow
@each("path", CONFIGS)
def test_every_gpu_config_fits_one_80_gb_gpu_and_eight(path: Path) -> None:
    own = BASES.get(path.stem, [])
    config, found = counted(str(path), own, [1])
    check_fits(found[1], 1, 80)
    base = getattr(config, "network", None) or config.model
    frozen = found[1].weights.get("bfloat16", 0) / 2
    assert (frozen or found[1].trained) == KNOWN[base.base]
    many = load_config(type(config), path, [*own, *on_eight(path)])
    assert many.fit.batch_size % 8 == 0
    # As much as one GPU holds already, and the copy of the gradients.
    assert max(micro_batch(many, 8), micro_batch(config, 8)) <= micro_batch(config, 1)
    check_fits(replace(found[1], buckets=found[1].gradients), 8, 80)
    for part, seen in zip(("step", "validation"), SEEN.get(path.stem, ()), strict=False):
        other = "validation" if part == "step" else "step"
        if seen:
            assert replace(found[1], **{other: 0}).total / GIB == pytest.approx(seen, rel=0.05), part


def test_all_gpu_configs_are_among_those_counted() -> None:
    stems = {path.stem for path in CONFIGS}
    assert {
        "thoughts_qwen7b",
        "thoughts_dpo",
        "thoughts_grpo",
        "thoughts_t5",
        "verifier_qwen7b",
        "verifier_deberta",
        "reader_causal",
    } <= stems


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


def settings(base: Path, **model: Any) -> TrainLanguageConfig:
    config = load_config(TrainLanguageConfig, None, [f"model.base={base}", "fit.batch_size=2", "judging.tokens=8"])
    return replace(config, model=replace(config.model, context=64, dtype="float32", **model))


def measured(config: TrainLanguageConfig) -> tuple[Memory, int]:
    """Return what the tensors of a real step take, and the bytes that its forward pass keeps for the backward one."""
    model = open_language_model(config, "verifier", torch.device("cpu"))
    network, kept = model.network, {}
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    rows = [Example(None, (5,) * 56, (6,) * 8)] * 2  # type: ignore[arg-type]
    optimiser = torch.optim.AdamW(groups_of(network))
    network.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = supervised_losses(model, network, rows, torch.device("cpu")).sum()
    saved = sum(storage.nbytes() for storage in kept.values())
    loss.backward()
    optimiser.step()
    trained = [p for p in network.parameters() if p.requires_grad]
    state = sum(v.nbytes for row in optimiser.state.values() for v in row.values())
    gradients = sum(p.grad.nbytes for p in trained if p.grad is not None)
    weights = {"float32": sum(p.nbytes for p in network.parameters())}
    return Memory(weights, sum(p.numel() for p in trained), gradients, state, 0, 0, 0), saved


@each("model", [{}, {"train": "full"}, {"checkpointing": True}])
def test_the_count_is_that_of_a_real_step(base: Path, model: dict[str, Any]) -> None:
    config = settings(base, **model)
    found, (real, saved) = language_memory(config, 1), measured(config)
    assert replace(found, step=0, validation=0) == real
    # The backward pass adds less than half to what the forward one keeps; what checkpointing drops, it makes again.
    whole = measured(settings(base, **model | {"checkpointing": False}))[1]
    assert saved <= found.step <= 1.5 * whole


def test_dropout_and_what_autocast_leaves_in_float32_are_counted_as_on_a_gpu() -> None:
    x = torch.ones(64, 1024, dtype=torch.bfloat16)
    with as_on_gpu(), torch.autocast("cpu", torch.bfloat16):
        assert torch.nn.Softmax(-1)(x).dtype == torch.nn.LayerNorm(1024)(x).dtype == torch.float32
        assert torch.nn.functional.softmax(x, -1, dtype=torch.bfloat16).dtype == torch.bfloat16
    network = torch.nn.Dropout(0.5)
    rows = torch.ones(64, 1024, requires_grad=True)
    assert 5 * rows.numel() <= step_bytes(network, lambda model: model(rows), "no") < 9.1 * rows.numel()
    assert network.eval()(rows) is rows


def test_eight_gpus_hold_a_copy_of_the_gradients(base: Path) -> None:
    one, eight = (language_memory(settings(base), devices) for devices in (1, 8))
    assert one.buckets == 0 and eight.buckets == eight.gradients == 4 * eight.trained
    assert eight.step < 0.7 * one.step  # one row instead of two


@pytest.mark.slow
def test_checkpointing_pays_with_depth_and_depth_is_extrapolated(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = base_sizes(str(base)) | {"num_hidden_layers": 5}
    sizes.pop("layer_types", None)
    monkeypatch.setattr("gnnrag.training.language.memory.base_sizes", lambda name: sizes)
    plain, saving = (language_memory(settings(base, checkpointing=on), 1) for on in (False, True))
    assert saving.step < 0.6 * plain.step
    monkeypatch.setattr("gnnrag.training.language.memory._TRACED", (5, 6))  # all layers are built
    assert language_memory(settings(base, checkpointing=True), 1) == saving
    assert language_memory(settings(base), 1) == plain


def test_the_command_prints_a_table_and_refuses_what_does_not_fit(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(f"kind: causal\nmodel: {{base: {base}, context: 64}}\njudging: {{tokens: 8}}\n", "utf-8")
    assert main([str(config)]) == 0
    shown = capsys.readouterr().out
    assert "forward and backward" in shown and "8 GPUs" in shown
    with pytest.raises(ConfigError, match=r"GiB do not fit the GPU: gpu_gib=0.001 less 10%"):
        main([str(config), "gpu_gib=0.001"])


@each("arguments, problem", [
    (["configs/train/thoughts_dpo.yaml"], "base is not given; give model.base=BASE"),
    (["configs/train/verifier_qwen7b.yaml", "model.base=nowhere"], "'nowhere' is no folder"),
    (["configs/train/verifier_qwen7b.yaml", "model.context=90"], "no room beside judging.tokens=96"),
    (["configs/train/gnn_2wiki.yaml"], "memory is counted for causal, seq2seq, cross_encoder"),
    (["configs/train/verifier_qwen7b.yaml", "gpu_gib=many"], "gpu_gib='many': a number of GiB"),
])  # fmt: skip
def test_what_cannot_be_counted_is_told(arguments: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        main(arguments)


def test_what_fits_is_not_refused() -> None:
    check_fits(Memory({"bfloat16": 71 * GIB}, 0, 0, 0, 0, GIB // 2, GIB // 4), 1, 80)
    with pytest.raises(ConfigError, match="each of 8 GPUs"):
        check_fits(Memory({"bfloat16": 71 * GIB}, 0, 0, 0, 0, GIB // 2, 2 * GIB), 8, 80)
