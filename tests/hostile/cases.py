"""What a stranger may hand over, and the commands that then read it: each ends well, or with one line that names it."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import os
import pkgutil
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

import gnnrag
from gnnrag import roles
from gnnrag.cli import ask, compare, evaluate, index
from gnnrag.cli.console import run_script
from gnnrag.common.records import read_settings
from gnnrag.config import EvaluateConfig, load_config, to_plain
from gnnrag.datasets.base import load_passages
from gnnrag.gnn.checkpoint import load_checkpoint
from gnnrag.index.index import Index
from gnnrag.llm.base import Message, Request
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.tuned.chain_verifier import CHAIN, load_chain
from gnnrag.roles.tuned.checkpoint import load_trained, read_tuned
from gnnrag.roles.tuned.encoder import KIND as NEXT_HOP
from gnnrag.roles.tuned.encoder import NextHopConfig, NextHopEncoder
from gnnrag.run.rundir import read_predictions, trace_lines
from gnnrag.run.sharding import parts_of
from tests.helpers.indexes import CORPUS, HASH_DOTS
from tests.hostile import forging
from tests.hostile.forging import SECRET, forge, sign

Main = Callable[[Sequence[str]], int]
QUESTIONS = (
    {"id": "q1", "question": "Who was the father of Ada Lovelace?", "answers": ["Lord Byron"], "gold": ["p1"]},
    {"id": "q2", "question": "Where did the father of Ada Lovelace die?", "answers": ["Missolonghi"], "gold": ["p2"]},
)
DATA = ["data.path=data", "index.path=index", "index.text.language=blank:en", "index.embedder.model=hash"]
RUN = [*DATA, "run.root=runs", "retriever=chg", "method=bdtr"]
COMMANDS = 0.06  # share of the cases that go through a command as a person runs it; the others only read
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Ended:
    """How a case ended: the exit code, what was done to what, and what was run."""

    code: int
    forgery: str
    command: str


def prepare(root: Path) -> None:
    """Write what honest people have: data, documents, an index, runs, checkpoints and a response cache."""
    (root / "data").mkdir(parents=True)
    rows = "".join(json.dumps(asdict(passage)) + "\n" for passage in CORPUS)
    (root / "data" / "corpus.jsonl").write_text(rows, "utf-8")
    (root / "data" / "questions.dev.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS), "utf-8")
    (root / "documents").mkdir()
    (root / "documents" / "ada.md").write_text("# Ada Lovelace\n\nAda was a daughter of Lord Byron.\n")
    (root / "documents" / "rows.jsonl").write_text('{"id": "1", "title": "Byron", "text": "Byron was a poet."}\n')
    (root / "more.txt").write_text("Newstead Abbey was the home of Lord Byron.\n")
    nested = {"data": {"path": "data"}, "run": {"root": "runs"}, "budget": {"max_rounds": 3}, "seed": 1}
    nested["index"] = {"path": "index", "text": {"language": "blank:en"}, "embedder": {"model": "hash"}}
    (root / "config.json").write_text(json.dumps(nested | {"method": "bdtr", "retriever": {"name": "chg"}}))
    for folder in ("gnn/checkpoints/default", "roles/tuned/checkpoints/verifier", "roles/tuned/checkpoints/encoder"):
        name = folder.rpartition("/")[2].replace("default", "gnn")
        shutil.copytree(Path(gnnrag.__file__).parent / folder, root / "checkpoints" / name)
    before = Path.cwd()
    os.chdir(root)
    try:
        for arguments in (
            [*RUN, "run.name=one"],
            [*RUN, "run.name=two", "method=single"],
            [*RUN, "run.name=parts", "shard=1/2"],
            [*RUN, "run.name=parts", "shard=2/2"],
        ):
            assert run_script(evaluate.main, arguments, "") == 0
        assert _ask_twice([]) == 0
    finally:
        os.chdir(before)
    assert (root / "cache" / "llm.sqlite").is_file()


def snapshot(root: Path, without: Path) -> dict[str, tuple[object, ...]]:
    """Return what is on disk outside of a folder: names, kinds, sizes, times and contents."""
    found: dict[str, tuple[object, ...]] = {}
    for where, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(where, name) != without]
        for path in (Path(where, name) for name in (*folders, *files)):
            facts = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path.relative_to(root))] = (facts.st_mode, facts.st_size, facts.st_mtime_ns, content)
    return found


# ------------------------------------------------------------------------------------------------------ the cases
def _index(draw: random.Random, victim: Path) -> tuple[str, Main, list[str]]:
    told = forge(draw, Path("index"), victim)
    if draw.random() < 0.75:
        sign(Path("index"))
    if draw.random() >= COMMANDS:
        return told, _read_index, []
    commands: list[tuple[Main, list[str]]] = [
        (ask.main, ["Where did the father of Ada Lovelace die?", "index.path=index"]),
        (ask.main, ["Who was Ada?", *DATA, "retriever=bm25", "method=single"]),
        (index.main, ["add", "index", "more.txt"]),
        (index.main, ["remove", "index", "p2"]),
        (index.main, ["build", *DATA, *HASH_DOTS]),
        (index.main, ["inspect", "index"]),
        (evaluate.main, [*RUN, "run.name=new"]),
    ]
    return told, *draw.choice(commands)


def _read_index(arguments: Sequence[str]) -> int:
    opened = Index("index")
    for stage in opened.store.manifest["stages"]:
        opened.read(stage)
    return 0


def _run(draw: random.Random, victim: Path) -> tuple[str, Main, list[str]]:
    name = draw.choice(("one", "one", "parts"))
    told = forge(draw, Path("runs", name), victim)
    if draw.random() >= COMMANDS:
        return told, _read_run, [f"runs/{name}"]
    more = draw.choice(([], ["run.fresh=true"], ["shard=merge"] if name == "parts" else []))
    commands: list[tuple[Main, list[str]]] = [
        (evaluate.main, [*RUN, f"run.name={name}", *more]),
        (compare.main, [f"runs/{name}", "runs/two"]),
    ]
    return told, *draw.choice(commands)


def _read_run(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    for run in [*parts_of(folder).values()] or [folder]:
        read_predictions(run)
        trace_lines(run)
    return 0


def _checkpoint(draw: random.Random, victim: Path) -> tuple[str, Main, list[str]]:
    name = draw.choice(("gnn", "verifier", "encoder"))
    told = forge(draw, Path("checkpoints", name), victim)
    if name != "verifier":
        return told, _load_gnn if name == "gnn" else _load_encoder, []
    if draw.random() >= COMMANDS:
        return told, _load_verifier, []
    tuned = ["roles.verifier=tuned", "roles.verifier.path=checkpoints/verifier"]
    return told, evaluate.main, [*RUN, *tuned, "retriever=dense", "run.name=new"]


def _load_gnn(arguments: Sequence[str]) -> int:
    load_checkpoint(Path("checkpoints/gnn"))
    return 0


def _load_encoder(arguments: Sequence[str]) -> int:
    folder = Path("checkpoints/encoder")
    record = read_tuned(folder, "thoughts", (NEXT_HOP,))
    load_trained(folder, record, NextHopEncoder, read_settings(NextHopConfig, record.settings, folder), None)
    return 0


def _load_verifier(arguments: Sequence[str]) -> int:
    folder = Path("checkpoints/verifier")
    load_chain(folder, read_tuned(folder, "verifier", (CHAIN,)))
    return 0


def _cache(draw: random.Random, victim: Path) -> tuple[str, Main, list[str]]:
    path = Path("cache", "llm.sqlite")
    if draw.random() < 0.4:
        return forge(draw, Path("cache"), victim), _ask_twice, []
    with sqlite3.connect(path) as database:
        key, value = draw.choice(database.execute("SELECT key, value FROM replies").fetchall())
        if draw.random() < 0.2:
            schema = draw.choice(
                (
                    "CREATE TRIGGER t AFTER INSERT ON replies BEGIN DELETE FROM replies; END",
                    "DROP TABLE replies",
                    "ALTER TABLE replies RENAME TO others",
                    "CREATE VIEW v AS SELECT load_extension('x')",
                )
            )
            database.execute(schema)
            told = schema
        else:
            told, data = forging.change(draw, json.loads(value), forging.values(victim))
            text = forging.spelt(data)
            database.execute("UPDATE replies SET value = ? WHERE key = ?", (draw.choice((text, text.encode(), 7)), key))
    database.close()
    return f"cache: {told}", _ask_twice, []


def _ask_twice(arguments: Sequence[str]) -> int:
    """Ask a model two questions through the response cache: what it cannot read is asked again."""

    async def ask_all() -> None:
        backend = CachedBackend(ScriptedBackend.of(default="Answer: Lord Byron"), "cache/llm.sqlite")
        for text in ("Who was Ada?", "Who was Byron?"):
            reply = await backend.generate(Request((Message("user", text),)))
            assert isinstance(reply.text, str) and min(reply.prompt_tokens, reply.completion_tokens) >= 0
            reply.text.encode()
        await backend.close()

    asyncio.run(ask_all())
    return 0


def _config(draw: random.Random, victim: Path) -> tuple[str, Main, list[str]]:
    data = json.loads(Path("config.json").read_text())
    told, data = forging.change(draw, data, forging.values(victim))
    Path("config.yaml").write_text(forging.spelt(data), "utf-8", "surrogatepass")  # JSON is YAML
    # The caller has read the config that he runs, but for the values: where it writes is his own command's.
    arguments = ["config.yaml", "run.root=runs", "run.name=new", "index.path=index"]
    return f"config: {told}", evaluate.main if draw.random() < COMMANDS else _read_config, arguments


def _read_config(arguments: Sequence[str]) -> int:
    config = load_config(EvaluateConfig, arguments[0], arguments[1:])
    json.dumps(to_plain(config))
    return 0


_REPLIES = (
    '{"fast_thought": "who?", "slow_thought": "where?", "sufficient": false}', "Answer: Lord Byron",
    '{"answer": "Byron", "passages": [1]}', "Chain:\n1. Ada -> Byron [1]", "[1, 2]", '{"scores": [0.5, 9]}',
    "<think>x</think><answer>Byron</answer>", "<search>Byron</search>", "Action: Search[Byron]", "yes", "",
)  # fmt: skip
_NOISE = (
    "[" * 4000, "{" * 4000, '"' * 3000, "9" * 5000, " " * 5000, "\ud800", "\x1b[2J", "\x00", "\u202e", "</passage>",
    "../victim", "${oc.env:HOME}", "```json\n", "<think>", "NaN", "[99999999]", "-1", "1e999",
)  # fmt: skip


def _reply(draw: random.Random, victim: Path) -> tuple[str, Main, list[str]]:
    reply, noise = draw.choice(_REPLIES), draw.choice(_NOISE)
    at = draw.randrange(len(reply) + 1)
    text = draw.choice((reply[:at] + noise + reply[at:], noise, reply[:at]))
    if draw.random() >= COMMANDS:
        return f"parsed: {text[:60]!r}", _parse, [text]
    config = {"llm": {"name": "scripted", "default": text}, "roles": "prompted"}
    Path("reply.yaml").write_text(json.dumps(config))
    method = draw.choice(("bdtr", "graphsearch", "mgranrag", "dotrag", "react", "search_r1", "single", "ircot"))
    more = ["llm_cache=null", "budget.max_calls=40", "run.name=new", f"method={method}"]
    retriever = [] if method in ("graphsearch", "dotrag") else ["retriever=bm25"]
    arguments = ["reply.yaml", *DATA, "run.root=runs", *retriever, *more]
    return f"{method}: {text[:60]!r}", evaluate.main, arguments


def parsers() -> list[Callable[[str], object]]:
    """Return all that read a reply of which nothing else has to be known."""
    found = []
    for module in pkgutil.iter_modules(roles.__path__, "gnnrag.roles."):
        if "pars" in module.name or module.name.endswith("_reading"):
            for name, parse in inspect.getmembers(import_module(module.name), inspect.isfunction):
                needed = [p for p in inspect.signature(parse).parameters.values() if p.default is p.empty]
                if name.startswith("parse_") and len(needed) == 1 and parse.__module__ == module.name:
                    found.append(parse)
    return found


PARSERS = parsers()


def _parse(arguments: Sequence[str]) -> int:
    for parse in PARSERS:
        with suppress(MalformedError):
            parse(arguments[0])
    return 0


def _documents(draw: random.Random, victim: Path) -> tuple[str, Main, list[str]]:
    folder = draw.choice(("documents", "data"))
    told = forge(draw, Path(folder), victim)
    if draw.random() >= COMMANDS:
        return told, _read_documents, [folder]
    return told, ask.main, ["Who was Ada?", f"data.path={folder}", "index.path=fresh", *DATA[2:], "retriever=bm25"]


def _read_documents(arguments: Sequence[str]) -> int:
    load_passages(arguments[0])
    return 0


KINDS: Mapping[str, Callable[[random.Random, Path], tuple[str, Main, list[str]]]] = {
    "index": _index, "run": _run, "checkpoint": _checkpoint, "cache": _cache, "config": _config, "reply": _reply,
    "documents": _documents,
}  # fmt: skip


def attempt(seed: int, honest: Path, root: Path, output: Callable[[], str]) -> tuple[str, Ended]:
    """Forge one thing, let a command read it, and check that nothing happened that may not.

    Args:
        seed: of the forgery: the same number, the same case.
        honest: what `prepare` wrote.
        root: the canary's folder; what lies beside `inside` in it must stay as it is.
        output: returns what the command has printed.

    Returns:
        The kind of case, and how it ended.
    """
    draw, inside, victim = random.Random(seed), root / "inside", root / "victim"
    shutil.rmtree(inside, ignore_errors=True)
    kind = draw.choice(sorted(KINDS))
    shutil.copytree(honest, inside)
    os.chdir(inside)
    told, main, arguments = KINDS[kind](draw, victim)
    before = snapshot(root, inside)
    ended = Ended(run_script(main, arguments, ""), told, " ".join(arguments))
    said = output()
    assert ended.code in (0, 1, 2), ended
    assert "Traceback" not in said and SECRET not in said, (ended, said[-500:])
    assert ended.code != 2 or said.count("error: ") >= 1, (ended, said[-500:])
    assert not _RAW.search(said), (ended, said[-500:])
    assert snapshot(root, inside) == before, ended
    held = [path for path in inside.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in held if SECRET.encode() in path.read_bytes()], ended
    return kind, ended
