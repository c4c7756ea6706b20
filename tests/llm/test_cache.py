"""The response cache: what is in a key, what is kept, shared and refused, and what nobody can do to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gnnrag.errors import ArtefactError, LLMError
from gnnrag.llm import cache as cache_file
from gnnrag.llm.base import Message, Reply, Request
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.scripted import ScriptedBackend, ScriptedConfig
from tests.helpers.each import each

ROOT = Path(__file__).parents[2]


def ask(text: str = "q", **settings) -> Request:
    return Request((Message("user", text),), **settings)


class Echo(ScriptedBackend):
    """Answers with the request's own text; the same backend in every process."""

    identity = {"type": "echo"}  # noqa: RUF012


def echo(latency_s: float = 0.0) -> ScriptedBackend:
    return Echo.of((".", lambda r: f"re {r.messages[-1].content}"), latency_s=latency_s)


def test_second_ask_costs_no_call_and_survives_a_restart(tmp_path: Path) -> None:
    inner = ScriptedBackend.of((".", Reply("a {b} \u2028 ü", "stop", 11, 2, 0.5, model="m")))
    cached = CachedBackend(inner, tmp_path / "deep" / "cache.sqlite")
    first = asyncio.run(cached.generate(ask()))
    asyncio.run(cached.close())
    reopened = CachedBackend(inner, cached.path)
    second = asyncio.run(reopened.generate(ask()))
    assert first == Reply("a {b} \u2028 ü", "stop", 11, 2, 0.5, cached=False, model="m")
    assert second == Reply("a {b} \u2028 ü", "stop", 11, 2, 0.5, cached=True, model="m")
    assert len(inner.requests) == 1


def test_every_parameter_is_in_the_key(tmp_path: Path) -> None:
    cached = CachedBackend(echo(), tmp_path / "c.sqlite")
    variants = [
        ask(),
        ask("q2"),
        Request((Message("system", "q"),)),
        Request((Message("user", "q"), Message("user", ""))),
        ask(max_tokens=1),
        ask(temperature=0.0),
        ask(temperature=0.5),
        ask(stop=("a",)),
        ask(stop=("a", "b")),
        ask(seed=1),
        ask(schema={"type": "object"}),
        ask(model="other"),
        ask(raw=True),
    ]
    keys = {cached.key(r) for r in variants}
    other = CachedBackend(ScriptedBackend(ScriptedConfig(default="x")), tmp_path / "c.sqlite")
    assert len(keys | {other.key(r) for r in variants}) == 2 * len(variants)
    assert {f for f in Request.__dataclass_fields__} == {
        "messages", "max_tokens", "temperature", "stop", "seed", "schema", "model", "raw",
    }  # fmt: skip


def test_incomplete_replies_and_failures_are_not_kept(tmp_path: Path) -> None:
    for finish in ("length", "content_filter", "unknown"):
        inner = ScriptedBackend.of((".", Reply("x", finish)))
        cached = CachedBackend(inner, tmp_path / f"{finish}.sqlite")
        assert [asyncio.run(cached.generate(ask())).cached for _ in range(2)] == [False, False]
        assert len(inner.requests) == 2
        assert not cached.unreadable, "it was never written"
    cached = CachedBackend(ScriptedBackend.of((".", [LLMError("down"), "up"])), tmp_path / "c.sqlite")
    with pytest.raises(LLMError):
        asyncio.run(cached.generate(ask()))
    assert asyncio.run(cached.generate(ask())).text == "up"


def test_identical_requests_in_flight_are_sent_once(tmp_path: Path) -> None:
    inner = echo(latency_s=0.05)
    cached = CachedBackend(inner, tmp_path / "c.sqlite")

    async def go():
        return await asyncio.gather(*(cached.generate(ask(f"q{i % 2}")) for i in range(20)))

    replies = asyncio.run(go())
    assert len(inner.requests) == 2
    assert sum(not r.cached for r in replies) == 2
    assert [r.text for r in replies] == [f"re q{i % 2}" for i in range(20)]


def test_a_shared_failure_reaches_all_who_wait(tmp_path: Path) -> None:
    cached = CachedBackend(ScriptedBackend.of((".", [LLMError("down"), "up"]), latency_s=0.02), tmp_path / "c.sqlite")

    async def go():
        first = await asyncio.gather(*(cached.generate(ask()) for _ in range(3)), return_exceptions=True)
        return first, await cached.generate(ask())

    first, later = asyncio.run(go())
    assert [type(e) for e in first] == [LLMError] * 3 and later.text == "up"


@each("cancelled", [(0, 1), (1,)])  # the one who asked, one who waits
def test_one_who_gives_up_takes_nobody_along(tmp_path: Path, cancelled: tuple[int, ...]) -> None:
    inner = echo(latency_s=0.1)
    cached = CachedBackend(inner, tmp_path / "c.sqlite")

    async def go():
        tasks = [asyncio.create_task(cached.generate(ask())) for _ in range(4)]
        await asyncio.sleep(0.02)
        for number in cancelled:
            tasks[number].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)

    for number, reply in enumerate(asyncio.run(go())):
        assert isinstance(reply, asyncio.CancelledError) if number in cancelled else reply.text == "re q"
    assert len(inner.requests) == (2 if 0 in cancelled else 1) and not cached._in_flight


def test_eight_threads_share_one_cache(tmp_path: Path) -> None:
    inner = echo(latency_s=0.001)
    cached = CachedBackend(inner, tmp_path / "c.sqlite")
    wrong: list[str] = []

    def work(seed: int) -> None:
        async def go():
            for i in range(100):
                text = f"q{(i * 7 + seed * 13) % 100}"
                reply = await cached.generate(ask(text))
                if reply.text != f"re {text}":
                    wrong.append(reply.text)

        asyncio.run(go())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(inner.requests) == 100
    asyncio.run(cached.close())


CHILD = """
import asyncio, sys
from gnnrag.llm.base import Message, Request
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.scripted import ScriptedBackend
start, count = int(sys.argv[2]), int(sys.argv[3])
class Echo(ScriptedBackend):
    identity = {"type": "echo"}
cached = CachedBackend(Echo.of((".", lambda r: "re " + r.messages[-1].content)), sys.argv[1])
async def go():
    for i in range(start, start + count):
        await cached.generate(Request((Message("user", f"q{i}"),)))
        if i == start + 50:
            print("going", flush=True)
asyncio.run(go())
"""


def child(path: Path, start: int, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(start), str(count)], cwd=ROOT, stdout=subprocess.PIPE
    )


def rows(path: Path) -> dict[str, str]:
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return dict(connection.execute("SELECT key, value FROM replies"))


@pytest.mark.slow
def test_two_processes_and_a_kill_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    quiet = [child(path, 0, 300), child(path, 200, 300)]  # both make the new file at once
    doomed = child(path, 1000, 1_000_000)
    assert doomed.stdout is not None and doomed.stdout.readline() == b"going\n"
    time.sleep(0.05)
    os.kill(doomed.pid, signal.SIGKILL)
    doomed.wait()
    assert [p.wait(60) for p in quiet] == [0, 0]
    kept = rows(path)
    inner = echo()
    cached = CachedBackend(inner, path)

    async def go():
        return [await cached.generate(ask(f"q{i}")) for i in [*range(500), *range(1000, 1051)]]

    replies = asyncio.run(go())
    assert all(r.cached for r in replies) and not inner.requests
    assert replies[7].text == "re q7" and len(kept) >= 551
    for p in (*quiet, doomed):
        assert p.stdout is not None
        p.stdout.close()


def damage_header(path: Path) -> None:
    path.write_bytes(b"this is no database, whatever its name" * 1000)


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[16384:] = b"\x5a" * (len(data) - 16384)
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20000])


@each("damage", [damage_header, damage_middle, cut_off])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage) -> None:
    path = tmp_path / "c.sqlite"
    cached = CachedBackend(echo(), path)
    asyncio.run(cached.generate(ask()))
    asyncio.run(cached.close())
    damage(path)
    with pytest.raises(ArtefactError, match=r"c\.sqlite is damaged .* delete it"):
        asyncio.run(CachedBackend(echo(), path).generate(ask()))


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(ArtefactError, match="no response cache"):
        CachedBackend(echo(), path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()
    with pytest.raises(ArtefactError, match="cannot be opened"):
        CachedBackend(echo(), tmp_path)


def test_a_write_that_fails_costs_the_entry_not_the_reply(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cached = CachedBackend(echo(), tmp_path / "c.sqlite")
    cached._connection().execute("PRAGMA query_only = ON")
    assert asyncio.run(cached.generate(ask())).text == "re q"
    assert "reply not kept" in caplog.text


GOOD = {"text": "re q", "finish_reason": "stop", "prompt_tokens": 1, "completion_tokens": 1, "cost": 0.0}


def forged(path: Path, *statements: str, values: Sequence[object] = ()) -> CachedBackend:
    """Make a cache with one reply, change it from outside, and open it again."""
    cached = CachedBackend(echo(), path)
    asyncio.run(cached.generate(ask()))
    asyncio.run(cached.close())
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement, values)
    connection.close()
    return CachedBackend(echo(), path)


@each(
    "value",
    [
        "no JSON",
        "[" * 100_000,
        '{"txt": 1}',
        "[]",
        "null",
        b"\xff\xfe",
        b'{"text": "\xed\xa0\x80", "finish_reason": "stop"}',
        17,
        "x" * 10_000_001,
        *(
            json.dumps(GOOD | change)
            for change in (
                {"text": None}, {"text": ["re q"]}, {"text": 7}, {"finish_reason": "length"}, {"prompt_tokens": -1},
                {"prompt_tokens": 1.5}, {"prompt_tokens": True}, {"prompt_tokens": 10**400}, {"completion_tokens": "1"},
                {"cost": float("nan")}, {"cost": -1.0}, {"cost": 1e308}, {"is_estimated": 1}, {"model": 3},
                {"cached": True}, {"more": 1}, {"repaired": -1},
            )
        ),
    ],
)  # fmt: skip
def test_an_entry_that_is_no_reply_is_asked_for_again_and_replaced(
    tmp_path: Path, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    cached = forged(tmp_path / "c.sqlite", "UPDATE replies SET value = ?", values=[value])
    backend = cached.backend
    first, second = (asyncio.run(cached.generate(ask())) for _ in range(2))
    assert first.text == second.text == "re q" and (first.cached, second.cached) == (False, True)
    assert len(backend.requests) == 1 and len(cached.unreadable) == 1
    assert len(caplog.records) == 1 and "asks again" in caplog.text and "c.sqlite" in caplog.text


def test_many_unreadable_entries_are_one_warning_and_a_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cached = CachedBackend(echo(), tmp_path / "c.sqlite")
    for text in "abc":
        asyncio.run(cached.generate(ask(text)))
    asyncio.run(cached.close())
    with sqlite3.connect(cached.path) as connection:
        connection.execute("UPDATE replies SET value = 'x'")
    connection.close()
    for text in "abc":
        assert asyncio.run(cached.generate(ask(text))).text == f"re {text}"
    asyncio.run(cached.close())
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records][1:] == ["3 replies could not be read"]


def test_an_old_entry_with_half_a_character_is_mended_and_counted(tmp_path: Path) -> None:
    cached = forged(
        tmp_path / "c.sqlite", "UPDATE replies SET value = ?", values=[json.dumps(GOOD | {"text": "a\ud800b\ude00"})]
    )
    reply = asyncio.run(cached.generate(ask()))
    assert reply.text == "a\ufffdb\ufffd" and reply.repaired == 2 and reply.cached
    assert reply.flags == ("reply_repaired",)


@each(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON replies BEGIN DELETE FROM replies; END",
        "CREATE VIEW v AS SELECT * FROM replies",
        "CREATE TABLE more (x)",
        "CREATE INDEX i ON replies (value)",
        "CREATE INDEX i ON replies (length(value))",
        "ALTER TABLE replies ADD COLUMN more TEXT GENERATED ALWAYS AS (upper(value)) VIRTUAL",
        "ALTER TABLE replies RENAME TO others",
        "PRAGMA application_id = 1",
    ],
)
def test_a_schema_that_is_not_ours_is_refused(tmp_path: Path, statement: str) -> None:
    with pytest.raises(ArtefactError, match=r"c\.sqlite is a SQLite database but no response cache"):
        forged(tmp_path / "c.sqlite", statement)


@each("suffix", ["", "-wal", "-shm", "-journal"])
def test_nothing_is_written_through_a_link(tmp_path: Path, suffix: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    path = tmp_path / "c.sqlite"
    path.with_name(f"c.sqlite{suffix}").symlink_to(victim)
    with pytest.raises(ArtefactError, match="is a link, or no file"):
        CachedBackend(echo(), path)
    assert victim.read_bytes() == b""


def test_a_forged_journal_is_not_played_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite would undo what it says, and delete the file that it names as its master."""
    monkeypatch.setattr(cache_file, "_JOURNAL_S", 0.0)
    path, victim = tmp_path / "c.sqlite", tmp_path / "victim"
    asyncio.run(forged(path).close())
    victim.write_bytes(b"kept")
    name = str(victim).encode()
    magic = bytes.fromhex("d9d505f920a163d7")
    header = magic + struct.pack(">IIIII", 0, 1, path.stat().st_size // 16384, 512, 16384)
    master = struct.pack(">I", 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    path.with_name("c.sqlite-journal").write_bytes(header.ljust(512, b"\0") + master)
    with pytest.raises(ArtefactError, match=r"c\.sqlite-journal is no part of a response cache; delete it"):
        CachedBackend(echo(), path)
    assert victim.read_bytes() == b"kept"
