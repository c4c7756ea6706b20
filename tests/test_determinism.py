"""Issue 4: two runs give identical predictions and traces, one question at a time and 64 at once."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gnnrag import registry
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.index.build import build_index
from gnnrag.index.index import Index
from gnnrag.llm.base import Reply, Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.run.pipeline import Pipeline, index_settings, needed_stages
from gnnrag.session import Session
from gnnrag.types import Prediction
from tests.helpers.each import each
from tests.helpers.every_method import SETTINGS
from tests.helpers.replies import good

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample"
BASE = ["index.embedder.model=hash", "index.text.language=blank:en", "llm=scripted", "llm_cache=null"]
KINDS = {"offline": ["roles=offline"], "prompted": ["roles=prompted"],
         "oracle": ["roles=oracle", "roles.keywords=offline"]}  # fmt: skip


class Jittery(ScriptedBackend):
    """Answers after a while that differs from call to call and from run to run."""

    def __init__(self, config: object = None) -> None:
        super().__init__()
        self.clock = random.Random()

    async def generate(self, request: Request) -> Reply:
        """See `Backend`."""
        for _ in range(self.clock.randrange(6)):
            await asyncio.sleep(0)
        return Reply(good(request), "stop", len(request.text), 1, model="scripted")


def load(method: str, kind: str, concurrency: int = 1) -> EvaluateConfig:
    dots = [*BASE, f"method={method}", *SETTINGS[method][0], *KINDS[kind], f"concurrency={concurrency}"]
    return load_config(EvaluateConfig, None, dots)


@pytest.fixture(scope="module")
def data() -> Dataset:
    whole = load_dataset(SAMPLE)
    # A text that two questions share is where one could be served what was found for the other.
    questions = [*whole.questions[:3], replace(whole.questions[0], id="again")]
    wanted = {id_ for q in questions for id_ in q.gold} | {p.id for p in whole.passages[:12]}
    return replace(whole, questions=tuple(questions), passages=tuple(p for p in whole.passages if p.id in wanted))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, data: Dataset) -> Index:
    path, configs = tmp_path_factory.mktemp("index"), [load(m, k) for m in SETTINGS for k in KINDS]
    build_index(path, data.passages, index_settings(configs[0]), set().union(*map(needed_stages, configs)))
    return Index(path)


@pytest.mark.slow
@each("method", ["bdtr", "routed", "graphsearch"])
def test_concurrency_and_repetition_change_no_byte(
    index: Index, data: Dataset, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    compare(index, data, monkeypatch, method, "prompted")


@pytest.mark.slow
@each("method, kind", [(method, kind) for method in registry.METHODS for kind in KINDS])
def test_nor_do_they_in_any_method_on_any_roles(
    index: Index, data: Dataset, monkeypatch: pytest.MonkeyPatch, method: str, kind: str
) -> None:
    compare(index, data, monkeypatch, method, kind)


def compare(index: Index, data: Dataset, monkeypatch: pytest.MonkeyPatch, method: str, kind: str) -> None:
    """Run one question at a time and all at once, and compare all that is written of them."""
    monkeypatch.setitem(registry.BACKENDS, "scripted", f"{__name__}:Jittery")
    found = []
    for concurrency in (1, 64):
        rows: dict[str, str] = {}

        def done(prediction: Prediction, session: Session, rows: dict[str, str] = rows) -> None:
            row = {k: v for k, v in asdict(prediction).items() if k != "seconds"} | {"events": session.events}
            rows[prediction.question_id] = json.dumps(row)

        asyncio.run(Pipeline(load(method, kind, concurrency), index).run(data.questions, done))
        found.append(rows)
    assert len(found[0]) == len(data.questions) and found[0] == found[1]
    assert all(json.loads(row)["error"] is None for row in found[0].values())
