"""Every table of the papers loads, its rows are settings that exist, and its published figures are the papers'."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gnnrag.cli.console import run_script
from gnnrag.cli.reproduce import main
from gnnrag.errors import ConfigError
from gnnrag.reports.papers import PaperTable, Row, dots, load_table, row_config
from gnnrag.reports.reproduction import OWN, resolved, survey
from tests.helpers.each import each

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "configs" / "papers"
FILES = sorted(FOLDER.glob("*/*.yaml"))
LEAST = """
title: T
paper: P
used: {all: model}
base: {retriever: dense}
models: {roles: prompted, llm.model: big}
columns: [em, recall@5]
"""


def own(tmp_path: Path, more: str) -> PaperTable:
    path = tmp_path / "own.yaml"
    path.write_text(LEAST + more)
    return load_table(path)


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def cover(table: PaperTable) -> list[Row]:
    """Return rows that together have every label of every axis."""
    seen: set[tuple[int, str]] = set()
    rows = []
    for row in table.rows:
        labels = set(enumerate(row.labels))
        if not row.missing and not labels <= seen:
            seen |= labels
            rows.append(row)
    return rows


# Every table and figure of the four papers that has something to reproduce; the others are overviews, procedures,
# prompts and single cases.
COMPLETE = {
    "BDTR": "Table 1, Table 2, Table 3, Table 4, Table 5, "
    "Figure 1, Figure 2, Figure 3, Figure 4a, Figure 4b, Figure 4c, Figure 4d, Figure 6",
    "MGranRAG": "Table 1, Table 2, Table 3, Table 4, Figure 3, Figure 4",
    "GraphSearch": "Table 1, Table 2, Table 3, Table 4, Figure 2, Figure 4, Figure 5, Figure 6, Figure 7, Figure 8",
    "DotRAG": "Table 1, Table 2, Table 3, Table 4",
}


@pytest.mark.slow
def test_the_list_of_all_tables_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run", "--markdown"]) == 0
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head == "| paper | item | file | rows | preset | missing here |"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line]
    assert sorted((paper, item) for paper, item, *_ in rows if item != OWN) == sorted(
        (paper, item) for paper, items in COMPLETE.items() for item in items.split(", ")
    ), "none is missing, none is there twice"
    for paper, item, file, count, _, _ in rows:
        short = item.lower().replace(" ", "")
        assert int(count) > 0 and (item == OWN or file.endswith(f"configs/papers/{paper.lower()}/{short}.yaml"))
    assert len(rows) == len(FILES)


def test_some_tables_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = "{a: {missing: no such part}, b: {method: mgranrag, data.path: nowhere}, c: {method: bdtr}}"
    table = own(tmp_path, f"rows: {rows}")
    sample = f"data.path={ROOT / 'data/sample'}"
    assert survey(table, [sample]).missing == ("no such part",) and survey(table).missing[1] == "data: nowhere"
    assert survey(table).presets == ("repaired", "default") and survey(table).rows == 3
    assert survey(table, ["method=graphsearch", "method.preset=official"]).presets == ("official",)
    assert main(["--dry-run", str(tmp_path), str(FOLDER / "bdtr/table2.yaml")]) == 0
    out = capsys.readouterr().out
    assert "1 tables and figures of 2 papers, 1 tables of ours" in out and "no such part" in out
    assert main(["--dry-run", str(table.path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "a: no such part", "one is checked, row by row"
    assert main(["--dry-run", "--json", str(tmp_path)]) == 0
    assert [(row["paper"], row["rows"]) for row in json.loads(capsys.readouterr().out)] == [("T", 3)]
    (tmp_path / "empty").mkdir()
    assert run_script(main, ["--dry-run", str(tmp_path / "empty")], "") == 2
    assert "holds no table of a paper" in capsys.readouterr().err


def test_the_readme_names_every_file_once() -> None:
    rows = [line.split("|")[1:-1] for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("|")]
    table = {path: [cell.strip() for cell in row] for row in rows for path in re.findall(r"`(\w+/\w+)\.yaml`", row[1])}
    assert sum(len(re.findall(r"`\w+/\w+\.yaml`", row[1])) for row in rows) == len(table), "each once"
    assert set(table) == {name(path) for path in FILES}
    for path in FILES:
        found, (item, _, preset, *_) = survey(load_table(path)), table[name(path)]
        assert set(filter(None, preset.replace("-", "").split(", "))) == set(found.presets), path
        assert item.startswith(f"{found.paper}, {found.item}") or found.item == OWN, path


@pytest.mark.slow
@pytest.mark.timeout(1200)
@each("path, roles", [(path, roles) for path in FILES for roles in ("prompted", "offline", "oracle")])
def test_every_row_resolves_with_all_roles(path: Path, roles: str) -> None:
    table = load_table(path)
    assert len({row.name for row in table.rows}) == len(table.rows)
    assert resolved(table, next(row for row in table.rows if not row.missing)).run.root.startswith("runs/papers")
    for row in cover(table):
        config = resolved(table, row, [f"roles={roles}", "data.path=elsewhere", "index.root=i"])
        assert (config.data.path, config.index.root) == ("elsewhere", "i")
        if roles != "prompted":
            assert config.roles.default == roles  # type: ignore[attr-defined]
            is_swept = any(setting.startswith("index.embedder.model=") for setting in row.settings)
            assert is_swept or config.index.embedder.model != "nvidia/NV-Embed-v2", "models are the paper's alone"


def test_published_figures_are_found_by_block_row_and_average() -> None:
    rows = {row.name: row.published for row in load_table(FOLDER / "mgranrag/table2.yaml").rows}
    assert rows["2Wiki / MGranRAG Qwen3-8B T=3"] == pytest.approx({"recall@5": 0.959, "em": 0.698, "f1": 0.771})
    averages = {row.name: row.published for row in load_table(FOLDER / "mgranrag/table2.yaml").averages}
    assert len(averages) == 19 and averages["average / LightRAG"] == pytest.approx({"em": 0.039, "f1": 0.06})


def test_published_averages_are_those_that_the_specification_recomputed() -> None:
    """The mean over backbones of BDTR / best baseline - 1 (EM): 2.47, 3.76 and 8.43 percent."""
    rows = {r.name: r.published for r in load_table(FOLDER / "bdtr/table1.yaml").rows}
    for data, expected in (("HotpotQA", 2.47), ("2Wiki", 3.76), ("MuSiQue", 8.43)):
        gains = []
        for backbone in ("HippoRAG2", "RAPTOR", "GFM-RAG", "GraphRAG"):
            best = max(rows[f"{backbone} / {data} / {m}"]["em"] for m in ("IRCOT", "GCOT", "TOG", "IRGS"))
            gains.append(rows[f"{backbone} / {data} / BDTR"]["em"] / best - 1)
        assert 100 * sum(gains) / 4 == pytest.approx(expected, abs=0.02)


def test_grid_rows_and_what_they_set(tmp_path: Path) -> None:
    table = own(tmp_path, """
grid: {k: [3, 7], retriever: [bm25, dense]}
rows: {one: {method: single, method.reader_top_k: "{k}"}, two: {method: bdtr}}
""")  # fmt: skip
    assert [row.name for row in table.rows][:3] == ["3 / bm25 / one", "3 / bm25 / two", "3 / dense / one"]
    assert table.axes == ("k", "retriever", "row") and len(table.rows) == 8
    config = row_config(table, table.rows[4], ["data.limit=2"])
    assert (config.retriever.name, config.method.settings.reader_top_k, config.data.limit) == ("bm25", 7, 2)
    assert config.roles.default == "prompted" and config.llm.settings.model == "big"  # type: ignore[attr-defined]
    offline = row_config(table, table.rows[4], ["roles=offline"])
    assert offline.llm.settings.model != "big", "without a language model its name would only change the run's"
    with pytest.raises(ConfigError, match=r"run\.name=mine: each row is a run, named by its settings; its place is"):
        row_config(table, table.rows[4], ["run.name=mine"])
    assert dots({"a": "off", "b": [1, "x"], "c": None}) == ('a="off"', 'b=[1, "x"]', "c=null")


def test_runs_whose_time_counts_are_kept_apart(tmp_path: Path) -> None:
    table = load_table(FOLDER / "bdtr/table4.yaml")
    roots = {row_config(table, row).run.root for row in table.rows}
    assert roots == {"runs/papers/concurrency-1", "runs/papers/concurrency-16"}


@each(
    "more, message",
    [
        ("rows: {a: {}}\npublish: {}", r"unknown key 'publish'\. Did you mean 'published'"),
        ("grid: {}", "there are no rows"),
        ("rows: {a: 3}", r"give a list of values, or a section"),
        ("rows: {a: {}}\npublished: {metrics: [em], rows: {b: [1]}}", "published row 'b' is no row"),
        ("rows: {a: {}}\npublished: {metrics: [em], rows: {a: [1, 2]}}", "has 2 figures for 1 metrics"),
        ("rows: {a: {}}\npublished: {metrics: [ems], rows: {}}", "column 'ems' is unknown. Did you mean 'em'"),
        ("rows: {a: {}}\nplot: {x: rounds, y: em}", r"plot\.x='rounds' is unknown"),
        ("rows: {a: {}}\nplot: {x: row, y: f1}", r"plot\.y='f1' is unknown"),
        ("rows: {a: {}}\noverlap: {rows: [a, c]}", r"overlap\.rows='c' is unknown"),
        ("rows: {a: {}}\nby: month", "by='month': allowed are type, hops"),
        ("rows: {a: {}}\naverage: data", "average='data' is no axis"),
        ("rows: {a: {}}\ncounts: words", "counts='words': allowed are hierarchy, questions"),
        ("rows: {a: {}}\npublished: {metrics: [em], rows: {average: [1]}}", "published row 'average' is no row"),
    ],
)
def test_a_file_is_read_strictly(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        own(tmp_path, more)


@each(
    "settings, message",
    [
        ("{method: single, method.reader_topk: 3}", r"row 'a': unknown setting 'method\.reader_topk'.*reader_top_k"),
        ("{method: graphsearch}", "row 'a': method=graphsearch asks the channels"),
        ("{method: mgranrag, method.ablate: [chg]}", "row 'a': method.ablate=.*allowed are decomposition"),
        ("{method: dotrag, method.search.node_score: nodes}", r"row 'a': method\.search\.node_score='nodes'"),
        ("{method: ircot, method.rounds: -1}", r"row 'a': method\.rounds=-1: must be at least 0"),
        ("{method: bdtr, method.promotion: x}", r"row 'a': method\.promotion='x'"),
    ],
)
def test_a_row_is_checked_before_any_work(tmp_path: Path, settings: str, message: str) -> None:
    table = own(tmp_path, f"rows: {{a: {settings}}}")
    with pytest.raises(ConfigError, match=message):
        resolved(table, table.rows[0])


@each("given, is_missing", [("gnn=R", False), ("gnn.checkpoint=D", False), ("gnnx=D", True)])
def test_what_is_missing_until_the_caller_gives_it(given: str, is_missing: bool) -> None:
    blocks = {r.name.partition(" / ")[0]: r for r in load_table(FOLDER / "bdtr/table1.yaml", [given]).rows}
    assert bool(blocks["GFM-RAG"].missing) is is_missing
    assert 'retriever="gfm"' in blocks["GFM-RAG"].settings and not blocks["GFM-RAG, the network shipped here"].missing


def test_missing_parts_and_files(tmp_path: Path) -> None:
    table = own(tmp_path, "rows: {a: {missing: no such part}}")
    assert table.rows[0].missing == "no such part" and not table.rows[0].settings
    with pytest.raises(ConfigError, match="does not exist"):
        load_table(tmp_path / "none.yaml")
    (tmp_path / "half.yaml").write_text("title: T\nrows: {a: {}}")
    with pytest.raises(ConfigError, match="paper, used, base, columns must be given"):
        load_table(tmp_path / "half.yaml")


@each("more", ["rows: {a: [1]}\npublished: [1]", "rows: 5", "grid: [1]", "rows: {a: {}}\nplot: [x]"])
def test_a_file_of_another_form_is_one_error(tmp_path: Path, more: str) -> None:
    with pytest.raises(ConfigError, match=r"own\.yaml: "):
        own(tmp_path, more)


def test_published_figures_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"own\.yaml: is not of the form of a table \(ValueError"):
        own(tmp_path, "rows: {a: {}}\npublished: {metrics: [em], rows: {a: [much]}}")
