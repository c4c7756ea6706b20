"""Every table of the papers loads, its rows are settings that exist, and its published figures are the papers'."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gnnrag.errors import ConfigError
from gnnrag.reports.running import outline, resolved
from gnnrag.reports.tables import SEPARATOR, Table, dots, load_table, row_config

ROOT = Path(__file__).resolve().parents[2]
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


def table_of(tmp_path: Path, more: str) -> Table:
    path = tmp_path / "own.yaml"
    path.write_text(LEAST + more)
    return load_table(path)


# Every table and figure of the four papers that has something to reproduce; the others are overviews, procedures,
# prompts, single cases, and counts of the data.
COMPLETE = {
    "BDTR": "Table 1, Table 2, Table 3, Table 4, Table 5, "
    "Figure 1, Figure 2, Figure 3, Figure 4a, Figure 4b, Figure 4c, Figure 4d, Figure 6",
    "MGranRAG": "Table 2, Table 3, Table 4, Figure 3, Figure 4",
    "GraphSearch": "Table 1, Table 2, Table 3, Figure 2, Figure 4, Figure 5, Figure 6, Figure 7, Figure 8",
    "DotRAG": "Table 1, Table 2, Table 3, Table 4",
}


@pytest.fixture(scope="module")
def listed() -> dict[Path, tuple[str, str, int]]:
    """Return paper, item and number of rows of each file."""
    rows = {}
    for path in FILES:
        table = load_table(path)
        paper, _, title = table.title.partition(", ")
        item = re.match(r"(?:Table|Figure) \d+[a-d]?\b", title)
        rows[path] = (paper, item[0] if item else "", len(table.rows))
    return rows


def test_no_table_of_the_papers_is_missing_or_there_twice(listed: dict) -> None:
    assert sorted((paper, item) for paper, item, _ in listed.values() if item) == sorted(
        (paper, item) for paper, items in COMPLETE.items() for item in items.split(", ")
    )
    for path, (paper, item, rows) in listed.items():
        short = item.lower().replace(" ", "")
        assert rows > 0 and (not item or path == FOLDER / paper.lower() / f"{short}.yaml")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("roles", ["prompted", "offline", "oracle"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_rows_of_every_label_resolve_with_all_roles(path: Path, roles: str) -> None:
    table = load_table(path)
    assert len({row.name for row in table.rows}) == len(table.rows)
    seen: set[tuple[int, str]] = set()
    for row in table.rows:
        labels = set(enumerate(row.name.split(SEPARATOR)))
        if row.missing or labels <= seen:
            continue
        seen |= labels
        config = resolved(table, row, [f"roles={roles}", "data.path=elsewhere", "index.root=i"])
        assert (config.data.path, config.index.root) == ("elsewhere", "i")
        assert config.run.root.startswith("runs/papers")
        if roles != "prompted":
            assert config.roles.default == roles
            is_swept = any(setting.startswith("index.embedder.model=") for setting in row.settings)
            assert is_swept or config.index.embedder.model != "nvidia/NV-Embed-v2", "models are the paper's alone"


def test_published_figures_are_found_by_block_and_row() -> None:
    table = load_table(FOLDER / "mgranrag/table2.yaml")
    rows = {row.name: row.published for row in table.rows}
    assert rows["2Wiki / MGranRAG Qwen3-8B T=3"] == pytest.approx({"recall@5": 0.959, "em": 0.698, "f1": 0.771})


def test_grid_rows_and_what_they_set(tmp_path: Path) -> None:
    table = table_of(tmp_path, """
grid: {k: [3, 7], retriever: [bm25, dense]}
rows: {one: {method: single, method.reader_top_k: "{k}"}, two: {method: bdtr}}
""")  # fmt: skip
    assert [row.name for row in table.rows][:3] == ["3 / bm25 / one", "3 / bm25 / two", "3 / dense / one"]
    assert len(table.rows) == 8
    config = row_config(table, table.rows[4], ["data.limit=2"])
    assert (config.retriever.name, config.method.part.reader_top_k, config.data.limit) == ("bm25", 7, 2)
    assert config.roles.default == "prompted" and config.llm.part.model == "big"
    offline = row_config(table, table.rows[4], ["roles=offline"])
    assert offline.llm.part.model != "big", "without a language model its name would only change the run's"
    with pytest.raises(ConfigError, match=r"run\.name=mine.*run\.root"):
        row_config(table, table.rows[4], ["run.name=mine"])
    assert dots({"a": "off", "b": [1, "x"], "c": None}) == ('a="off"', 'b=[1, "x"]', "c=null")


@pytest.mark.parametrize(
    "more, named",
    [
        ("rows: {a: {}}\npublish: {}", "publish.*published"),
        ("grid: {}", "rows, grid"),
        ("rows: {a: {}}\npublished: {metrics: [em], rows: {b: [1]}}", "published row 'b'"),
        ("rows: {a: {}}\npublished: {metrics: [em], rows: {a: [1, 2]}}", "published row 'a'"),
        ("rows: {a: {}}\nby: month", "by 'month'.*hops, type"),
    ],
)
def test_a_file_is_read_strictly(tmp_path: Path, more: str, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"own\.yaml: .*{named}"):
        table_of(tmp_path, more)


@pytest.mark.parametrize(
    "settings, named",
    [
        ("{method: single, method.reader_topk: 3}", r"method\.reader_topk.*reader_top_k"),
        ("{method: mgranrag, method.ablate: [chg]}", r"method\.ablate.*decomposition"),
    ],
)
def test_a_row_is_checked_before_any_work(tmp_path: Path, settings: str, named: str) -> None:
    table = table_of(tmp_path, f"rows: {{a: {settings}}}")
    with pytest.raises(ConfigError, match=rf"row 'a': .*{named}"):
        resolved(table, table.rows[0])


@pytest.mark.parametrize("given, is_missing", [("gnn=R", False), ("gnn.checkpoint=D", False), ("gnnx=D", True)])
def test_what_is_missing_until_the_caller_gives_it(given: str, is_missing: bool) -> None:
    blocks = {r.name.partition(" / ")[0]: r for r in load_table(FOLDER / "bdtr/table1.yaml", [given]).rows}
    assert bool(blocks["GFM-RAG"].missing) is is_missing
    assert 'retriever="gfm"' in blocks["GFM-RAG"].settings


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_row_says_which_release_or_equations_it_follows(path: Path) -> None:
    assert not [row.name for row in load_table(path).rows if not row.follows and not row.missing]


SHOWN = ["method.channel=both", "method.reader_top_k=null", "method.reader_notes=null", "retriever.tail=none"]
RAPTOR = ["RAPTOR 2e3e83e", "tree.cluster=gmm", "tree.reduction=umap", "nodes=10", "tokens=3500"]
IRCOT, RAW = ["HippoRAG retrieve_ircot", "method.preset=official"], ["method.score_norm=raw"]
LETTER = ["equations 1 to 6", "method.preset=paper"]
HIPPO2 = ["HippoRAG c617143", "profile=released"]
# Table, the end of a row's name, and what the dry run must say of it, in its own line or in that of all rows.
FOLLOWED = [
    *(("bdtr/table1", f"{name} / MuSiQue / Original", more) for name, more in (
        ("RAPTOR", [*RAPTOR, "method.channel=both"]), ("HippoRAG2", HIPPO2),
        ("GraphRAG", ["graphrag 3.1.2", "extract.format=lightrag", "profile=released", *SHOWN[:3]]))),
    *((f"bdtr/{table}", row, more) for table in ("table1", "table2") for row, more in (
        ("IRCOT", IRCOT), ("GCOT", RAW), ("TOG", RAW), ("TOG on the knowledge graph", ["depth 3, width 3"]),
        ("IRGS", RAW), ("BDTR", LETTER))),
    *(("bdtr/table2", row, HIPPO2) for row in ("Original", "BDTR")),
    *((f"bdtr/{table}", row, [*RAPTOR, *more]) for table, row, more in (
        ("table3", "IRCOT", IRCOT), ("table3", "BDTR", LETTER), ("table5", "neither", ["method.channel=both"]),
        ("table5", "DTR", LETTER), ("table5", "both", LETTER))),
    *(("mgranrag/table2", row, more) for row, more in (
        ("IRCoT", IRCOT), ("Search-R1", ["preset=official"]), ("R1-Searcher", ["preset=official"]),
        ("GraphRAG", [*SHOWN[:3], "graphrag 3.1.2"]), ("LightRAG", [*SHOWN, "profile=released"]),
        ("RAPTOR", [*RAPTOR, *SHOWN[:3], "profile=released"]), ("HippoRAG", ["HippoRAG b144c46", "ties=last"]),
        ("HippoRAG 2", HIPPO2), ("MGranRAG Qwen3-8B T=3", ["MGranRAG d5e5ab5", "preset=official"]))),
    *((f"graphsearch/{table}", row, [*more, "data.chunk_words=300", "data.chunk_overlap=38"])
      for table in ("table1", "table2") for row, more in (
        ("LightRAG", [*SHOWN, "LightRAG 1.5.7", "mode=hybrid", "profile=released", "answer.style=long"]),
        ("PathRAG", [*SHOWN, "PathRAG 32567bf", "profile=released"]),
        ("HyperGraphRAG", [*SHOWN, "HyperGraphRAG a804827", "extract.format=hyper", "profile=released"]),
        ("GS + HyperGraphRAG", ["GraphSearch, the paper", "extract.format=hyper"]))),
    ("graphsearch/table1", "HippoRAG2", [*HIPPO2, "extract.format=openie"]),
    ("graphsearch/table1", "MiniRAG", [*SHOWN, "MiniRAG 4fe2fba", "profile=released"]),
    ("graphsearch/table3", "R4 as released", ["GraphSearch 1f93676", "method.preset=official"]),
    *((f"dotrag/{table}", row, more) for table in ("table1", "table2") for row, more in (
        ("DotRAG", ["sections 3.1 to 3.4", "method.preset=paper"]), ("LightRAG", [*SHOWN, "profile=released"]),
        ("PathRAG", [*SHOWN, "profile=released"]), ("TradRAG", ["mode=naive"]))),
    ("dotrag/table2", "DotRAG, names clustered", ["knowledge.resolve=true", "cosine .60"]),
    ("dotrag/table4", "3 rounds, 3 hops, names clustered", ["knowledge.resolve=true", "cosine .60"]),
]  # fmt: skip


@pytest.mark.slow
def test_the_dry_run_says_what_each_row_follows_and_sets() -> None:
    lines = {}
    for name in sorted({name for name, _, _ in FOLLOWED}):
        table = load_table(FOLDER / f"{name}.yaml")
        everything, *rows = outline(table, table.rows)
        lines[name] = [(row.partition(" (")[0], f"{everything} {row}") for row in rows]
    for name, end, wanted in FOLLOWED:
        found = [line for row, line in lines[name] if f" / {row}".endswith(f" / {end}")]
        assert found, (name, end)
        for line in found:
            assert not [text for text in wanted if text not in line], (name, end, line)


def test_the_letter_of_bdtr_and_dotrag() -> None:
    """The settings of specs/missing_tables.md, 2.5 and 5.3."""
    table = load_table(FOLDER / "bdtr/table5.yaml")
    row = next(row for row in table.rows if row.name == "both")
    letter = {
        "max_rounds": 2, "top_k": 200, "score_norm": "raw", "query_weights": [1, 1, 1], "verifier_passages": None,
        "max_promoted": None, "promotion": "order_only", "window": 50, "floor": 5, "max_final": None,
    }  # fmt: skip
    found = row_config(table, row).method.part
    assert {name: getattr(found, name) for name in letter} == letter
    table = load_table(FOLDER / "dotrag/table2.yaml")
    letter = {
        "early_stop": False, "node_score": "node", "pattern_judge": "never", "top_nodes": 20, "topics_only": True,
        "set_questions": "never", "terminal_only": False, "hub_degree": None, "by_name": False,
        "passage_score": "cosine", "edge_bonus": 0.0, "nodes": "resolved",
    }  # fmt: skip
    found = row_config(table, table.rows[0]).method.part
    assert {name: getattr(found, name) for name in letter} == letter
    for name, metric in (("table2", "resolved_f1"), ("table4", "node_f1")):
        columns = [column.name for column in load_table(FOLDER / f"dotrag/{name}.yaml").columns]
        assert {metric, f"{metric}_with_anchor"} <= set(columns), "with the start in the gold, and without"
