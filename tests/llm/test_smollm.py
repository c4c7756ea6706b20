"""SmolLM2, a real if small language model, in six methods: by `hf`, by `openvino` and behind a server. `make test-llm`.

It plays most roles badly. What has to hold: every question is a row, every bad reply is counted where users look.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnrag.common.files import read_journal
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.metrics.replies import described
from gnnrag.registry import ROLES, resolve
from gnnrag.run.evaluate import evaluate
from gnnrag.run.rundir import read_predictions
from tests.helpers.shared_data import SHARED_DATA
from tests.helpers.tiny_model import serve

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/smollm2"
pytestmark = [
    pytest.mark.llm,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (MODEL / "model.safetensors").is_file(), reason="there is no SmolLM2 here; run: make smollm"
    ),
]

QUESTIONS, PASSAGES, LENGTH = 5, 300, 150  # characters of a passage
# Few and short prompts: a tenth of what the methods would read, so that all runs end within minutes on two cores.
METHODS = {
    "bdtr": [
        "retriever=chg", "method.max_rounds=1", "method.thought_passages=2", "method.chain_passages=3",
        "method.verify=4", "method.floor=2", "method.max_final=3",
    ],
    "mgranrag": ["retriever=dense", "method.candidates=2", "method.iterations=1", "method.skip_read=none"],
    "graphsearch": [
        "retriever=lightrag", "method.reader_top_k=2", "method.max_parts=1", "method.reflection.max_expansions=1",
        "method.views.top_k=2", "method.views.tokens=300", "method.context.final_tokens=400",
        "method.context.history_tokens=300", "method.channels=semantic",
    ],
    "dotrag": [
        "retriever=bm25", "method.schema_file=null", "method.search.rounds=1", "method.search.paths_per_round=2",
        "method.output.passage_score=retriever", "method.output.passages=3", "method.output.path_tokens=300",
    ],
    "react": ["retriever=bm25", "method.max_searches=1", "method.max_turns=2", "method.passages=2"],
    "search_r1": ["retriever=bm25", "method.max_searches=1", "method.max_turns=2", "method.passages=2"],
}  # fmt: skip
SHORTER = {"graphsearch": ["method.reflection.rounds=0"]}  # where no schemas and no shared prefixes save time
LIMITS = [
    f"roles.{role}.options.max_tokens=32"
    for role, table in ROLES.items()
    if "prompted" in table and hasattr(resolve("role", "prompted", table).config_class, "max_tokens")
]
ROWS: list[str] = []


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first questions of MuSiQue on a part of its corpus; those of the sample, where there is no MuSiQue."""
    folder, source = tmp_path_factory.mktemp("data"), SHARED_DATA / "musique"
    source = source if source.is_dir() else ROOT / "data/sample"
    questions = (source / "questions.dev.jsonl").read_text("utf-8").splitlines()[:QUESTIONS]
    gold = {name for line in questions for name in json.loads(line)["gold"]}
    rows = (source / "corpus.jsonl").read_text("utf-8").splitlines()
    passages = [p for at, p in enumerate(map(json.loads, rows)) if at < PASSAGES or p["id"] in gold]
    corpus = [json.dumps(passage | {"text": passage["text"][:LENGTH]}) for passage in passages]
    for name, lines in (("corpus.jsonl", corpus), ("questions.dev.jsonl", questions)):
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="module", params=["openvino", "hf", "server"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    if request.param == "openvino":
        pytest.importorskip("openvino_genai", reason="run: pip install 'gnnrag[openvino]'")
        yield "openvino", ["llm=openvino", f"llm.model={MODEL}", "llm.dtype=bfloat16"]
    elif request.param == "hf":
        yield "hf", ["llm=hf", f"llm.model={MODEL}", "llm.device=cpu"]
    else:
        with serve(MODEL, tmp_path_factory.mktemp("serve")) as served:
            yield "server", [f"llm.base_url={served.base_url}", f"llm.model={served.model}", "llm.api_key_env=null"]


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print what came of the runs when all have ended."""
    yield
    capture: Any = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write("\n".join(["", *ROWS, ""]))


@pytest.mark.parametrize("method", METHODS)
def test_every_question_is_a_row_and_every_bad_reply_is_counted(
    llm: tuple[str, list[str]], method: str, data: Path, tmp_path: Path
) -> None:
    name, dots = llm
    config = load_config(EvaluateConfig, None, [
        f"data.path={data}", f"index.path={data / 'index'}", "index.embedder.model=hash",
        "index.text.language=blank:en", f"run.root={tmp_path}", f"method={method}", "roles=prompted", "llm_cache=null",
        "llm.prompts=small", f"concurrency={QUESTIONS}", *LIMITS, *METHODS[method],
        *dots, *(SHORTER.get(method, []) if name != "openvino" else []),
    ])  # fmt: skip
    started = time.perf_counter()
    path, metrics = evaluate(config)
    seconds = time.perf_counter() - started
    rows = read_predictions(path)
    assert len({row.question_id for row in rows}) == len(rows) == metrics["questions"] == QUESTIONS
    assert metrics["failed"] == sum(row.error is not None for row in rows)

    calls = [e for trace in read_journal(path / "traces.jsonl") for e in trace["events"] if e["event"] == "llm"]
    replies, failed = metrics["replies"], Counter(call["role"] for call in calls if call["problem"])
    assert {role: row["asked"] for role, row in replies.items()} == Counter(call["role"] for call in calls)
    assert {role: row.get("malformed", 0) + row.get("errors", 0) for role, row in replies.items()} == {
        role: failed[role] for role in replies
    }
    assert all(call["problem"] for call in calls if call["finish_reason"] == "length"), "what is cut off has failed"

    read, written = (sum(row.get(k, 0) for row in replies.values()) for k in ("prompt_tokens", "completion_tokens"))
    assert read > 0 and written > 0
    ROWS.append(
        f"{name:9}{method:12} {len(rows)} questions, {metrics['failed']} failed, {len(calls)} calls, {read:.0f} + "
        f"{written:.0f} tokens, {seconds:.1f} s, {(read + written) / seconds:.0f} tokens/s"
    )
    ROWS.extend(f"         {role}: {described(row)}" for role, row in replies.items())
