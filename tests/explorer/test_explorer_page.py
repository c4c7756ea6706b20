"""What the page of runs holds, read back from its HTML."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import GnnragError
from gnnrag.metrics.comparison import load_runs
from gnnrag.pages.comparison import SCRIPTS, STORIES, STYLES, build_model, render
from tests.helpers.explorer_runs import EVIL, invented_data, invented_run, page_of
from tests.helpers.indexes import REPOSITORY


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    root = tmp_path_factory.mktemp("pair")
    data = invented_data(root / "data", 45)
    return data, [invented_run(data, root / "one", 1, 3, "single"), invented_run(data, root / "two", 3, 2)]


def model(paths: list[Path], data: str | None = None) -> Any:
    return build_model(paths, load_runs(paths), data)


def blocks_of(html: str) -> dict[str, Any]:
    found = re.findall(r'<script type="text/plain" data-block="([\w-]+)">([A-Za-z0-9+/=]*)</script>', html)
    return {name: json.loads(gzip.decompress(base64.b64decode(text))) for name, text in found}


def test_the_page_holds_the_figures_of_the_runs(pair: tuple[Path, list[Path]], tmp_path: Path) -> None:
    _, paths = pair
    html = page_of(paths, tmp_path / "page.html").read_text("utf-8")
    head = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])
    for run, path in zip(head["runs"], paths, strict=True):
        metrics = json.loads((path / "metrics.json").read_text())
        assert run["metrics"]["retrieval/recall@5"] == metrics["retrieval/recall@5"]
        assert run["metrics"]["retrieval/recall@5_ci"] == metrics["retrieval/recall@5_ci"]
        assert run["metrics"]["by_round"] == metrics["by_round"]
        assert set(run["metrics"]["by_type"]) == set(metrics["by_type"])
    assert [run["label"] for run in head["runs"]] == ["single · bm25 · offline", "bdtr · bm25 · offline"]
    blocks = blocks_of(html)
    assert len(blocks["questions"]) == 45 and len(blocks["story-1-2"]) == 45 - 2 * STORIES
    assert blocks["story-1-0"][0]["answer"] == "Harbour 0"
    numbers = {n for name, rows in blocks.items() if name.startswith("story") for story in rows for n in story["read"]}
    known = sum(len(rows) for name, rows in blocks.items() if name.startswith("passages"))
    assert numbers and max(numbers) < known


def test_nothing_hostile_stands_in_the_page_as_markup(pair: tuple[Path, list[Path]]) -> None:
    _, paths = pair
    found = model(paths)
    found.head["name"] = found.head["runs"][0]["label"] = EVIL
    html = render(found)
    body = html.partition("</title>")[2]
    assert EVIL not in html and "<img" not in html and "\u2028" not in body
    assert html.count("<script>") == 1 and "__BLOCKS__" not in html
    around = re.sub(r'<script type="application/json".*?</script>', "", body, flags=re.S)
    assert "https://" not in around and "src=" not in around and "hacked" not in around


def test_what_figures_must_not_be_taken_for(pair: tuple[Path, list[Path]], tmp_path: Path) -> None:
    _, paths = pair
    copy = Path(shutil.copytree(paths[1], tmp_path / "oracle"))
    config = json.loads((copy / "config.yaml").read_text())
    config["roles"]["reader"]["impl"] = "oracle"
    (copy / "config.yaml").write_text(json.dumps(config))
    (copy / "meta.json").write_text(json.dumps({"trained_on": {"roles.verifier": "3 of 45"}}))
    (copy / "traces.jsonl").unlink()
    metrics = json.loads((copy / "metrics.json").read_text())
    (copy / "metrics.json").write_text(json.dumps(metrics | {"failed": 2}))
    notes = " ".join(model([paths[0], copy]).head["runs"][1]["notes"])
    for words in (
        "roles.verifier was trained on 3 of 45",
        "role reader reads the gold",
        "2 questions failed",
        "no traces",
    ):
        assert words in notes


def test_the_package_brings_its_files() -> None:
    folder = REPOSITORY / "gnnrag" / "pages" / "assets"
    assert {p.stem for p in folder.glob("*.js")} == {*SCRIPTS}
    assert {p.stem for p in folder.glob("*.css")} == {*STYLES}
    assert '"pages/assets/*"' in (REPOSITORY / "pyproject.toml").read_text("utf-8")
    for script in folder.glob("*.js"):
        text = script.read_text("utf-8")
        assert "innerHTML" not in text and "</script" not in text and "eval(" not in text


def test_data_that_moved(pair: tuple[Path, list[Path]], tmp_path: Path) -> None:
    data, paths = pair
    copies = [Path(shutil.copytree(path, tmp_path / path.name)) for path in paths]
    for copy in copies:
        config = json.loads((copy / "config.yaml").read_text())
        config["data"]["path"] = str(tmp_path / "gone")
        (copy / "config.yaml").write_text(json.dumps(config))
    found = model(copies)
    assert not found.head["has_texts"] and "--data" in found.head["notes"][0] and "gone" in found.head["notes"][0]
    assert found.questions[0]["text"] == "Which harbour number 0 is meant? 0", "the first query says it"
    assert found.questions[0]["type"] == "bridge" and found.passages[0] == [found.passages[0][0], "", ""]
    back = model(copies, str(data))
    assert back.head["has_texts"] and back.head["notes"] == [] and back.questions[1]["answers"] == ["Harbour 1"]
    other = invented_data(tmp_path / "other", 20)
    notes = model(copies, str(other)).head["notes"]
    assert "not those that the runs read" in notes[0] and "25 questions" in notes[1]
    with pytest.raises(GnnragError, match="nowhere"):
        model(copies, str(tmp_path / "nowhere"))
