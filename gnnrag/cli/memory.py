"""Tell what a training config would take of a GPU's memory, without a GPU, weights or rows; for one GPU and for eight.

    gnnrag memory configs/train/verifier_qwen7b.yaml [key=value ...] [gpu_gib=80] [--json]

For language models (`kind` causal, seq2seq) and the cross-encoder. The base is a folder with a config.json, or one of
gnnrag/training/language/bases.yaml; of a training that starts from a run, give model.base. All rows count as long as
`model.context`, lists as full. A tenth of the memory is left to CUDA. Exit code 2 where it does not fit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gnnrag.cli.console import split_arguments
from gnnrag.cli.tables import plain_table
from gnnrag.config import load_config, read_yaml
from gnnrag.errors import ConfigError
from gnnrag.training.config import check_fit
from gnnrag.training.language.memory import COUNTS, GIB, Memory, check_fits, micro_batch

DEVICES = (1, 8)


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    source, overrides = split_arguments([a for a in arguments if a != "--json"])
    given = [o.partition("=")[2] for o in overrides if o.startswith("gpu_gib=")]
    try:
        gib = float(given[-1]) if given else 80.0
    except ValueError:
        raise ConfigError(f"gpu_gib={given[-1]!r}: a number of GiB") from None
    config, found = counted(source, [o for o in overrides if not o.startswith("gpu_gib=")])
    if "--json" in arguments:
        print(json.dumps({n: asdict(memory) | {"total": memory.total} for n, memory in found.items()}, indent=2))
    else:
        print(table(config, found))
    for devices, memory in found.items():
        check_fits(memory, devices, gib)
    return 0


def counted(
    source: str | None, overrides: Sequence[str], numbers: Sequence[int] = DEVICES
) -> tuple[Any, dict[int, Memory]]:
    """Return the settings and what each process needs, by the number of GPUs. ConfigError: another kind of training."""
    chosen = [o.partition("=")[2] for o in overrides if o.startswith("kind=")]
    kind = (
        chosen[-1] if chosen else str(read_yaml(source, "those of configs/train").get("kind")) if source else "causal"
    )
    if kind not in COUNTS:
        raise ConfigError(f"kind={kind!r}: memory is counted for {', '.join(COUNTS)}")
    schema, count = COUNTS[kind]
    config = load_config(schema, source, overrides)
    for devices in numbers:
        check_fit(config.fit, devices)
    return config, {devices: count(config, devices) for devices in numbers}


def table(config: Any, found: dict[int, Memory]) -> str:
    """Return the table, in GiB."""
    columns = list(found.values())
    names = sorted(set().union(*(one.weights for one in columns)))
    rows = [(f"weights, {name}", [one.weights.get(name, 0) for one in columns]) for name in names]
    rows += [
        ("gradients", [one.gradients for one in columns]),
        ("AdamW", [one.optimiser for one in columns]),
        ("DDP's copy of gradients", [one.buckets for one in columns]),
        ("a second model as reference", [0 for _ in columns]),  # log-probabilities are computed once and kept on disk
        ("forward and backward", [one.step for one in columns]),
        ("or, in validation", [one.validation for one in columns]),
        ("together", [one.total for one in columns]),
    ]
    cells = [[name, *(f"{value / GIB:.2f}" for value in values)] for name, values in rows]
    cells.append(["items of a micro-batch", *(str(micro_batch(config, devices)) for devices in found)])
    cells.append(["trained parameters", *(f"{one.trained:,}" for one in columns)])
    return plain_table(["GiB of each GPU", *(f"{n} GPU{'s' if n > 1 else ''}" for n in found)], cells)
