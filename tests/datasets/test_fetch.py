"""Fetching from a server on loopback that cuts connections, changes files and knows byte ranges."""

from __future__ import annotations

import hashlib
import json
import signal
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gnnrag.cli import fetch as script
from gnnrag.common.files import write_json
from gnnrag.datasets import fetch as downloading
from gnnrag.datasets.fetch import LOCK, download, get, part_of, read_lock, verify, write_down
from gnnrag.datasets.releases import Release, ReleaseFile, advice, described, read_releases, release, releases
from gnnrag.errors import ConfigError, DataError, GnnragError
from tests.helpers.each import each

BODY = bytes(range(256)) * 4000  # 1 MB
SHA = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def send_on(self, there: str) -> None:
        self.send_response(302)
        self.send_header("Location", there)
        self.end_headers()
        self.close_connection = True
        for _ in range(64):
            try:
                self.wfile.write(b" " * (1 << 20))
            except OSError:
                self.server.site.unread = True  # type: ignore[attr-defined]
                break

    def do_GET(self) -> None:
        site = self.server.site  # type: ignore[attr-defined]
        site.requests.append((self.path, self.headers.get("Range")))
        fault = site.faults.pop(0) if site.faults else None
        if isinstance(fault, str) and "://" in fault:  # sent on, with a page of no stated length
            return self.send_on(fault)
        if isinstance(fault, int):
            return self.send_error(fault)
        if self.path not in site.files:
            return self.send_error(404)
        body, tag = site.files[self.path], f'"{hashlib.md5(site.files[self.path]).hexdigest()}"'
        first = 0
        if site.ranges and (asked := self.headers.get("Range")) and self.headers.get("If-Range") == tag:
            first = int(asked.removeprefix("bytes=").rstrip("-"))
            if first >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - first))
        self.send_header("ETag", tag)
        self.end_headers()
        if fault == "cut":
            self.wfile.write(body[first : first + 400_000])
            self.close_connection = True
            return None
        for start in range(first, len(body), 50_000):
            self.wfile.write(body[start : start + 50_000])
            time.sleep(site.pause)
        return None

    def log_message(self, *args: object) -> None:
        pass


class Site:
    def __init__(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.site = self  # type: ignore[attr-defined]
        self.files = {"/a.json": BODY, "/deep/b.json": b"[]"}
        self.faults: list[int | str] = []
        self.requests: list[tuple[str, str | None]] = []
        self.ranges, self.pause = True, 0.0
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def release(self, *paths: str, **more: object) -> Release:
        files = tuple(ReleaseFile(path, f"{self.url}/{path}", **more) for path in paths or ("a.json", "deep/b.json"))
        return Release("toy", "A toy", "https://toy.example", "CC0", "1 MB", files, (".",))


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Site()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()


def fetch(site, folder, **given):
    return get(site.release(), folder, wait_s=0.01, **given)


# -------------------------------------------------------------------------------------------------------- fetching
def test_files_arrive_and_are_not_fetched_twice(site, tmp_path):
    notes: list[str] = []
    fetch(site, tmp_path / "unknown", on_note=notes.append)
    assert notes == ["SHA-256 UNKNOWN for 2 files: the release publishes none; --record writes down what came"]
    assert not (tmp_path / "unknown" / LOCK).exists()
    notes.clear()
    site.requests.clear()
    tmp_path /= "recorded"
    assert fetch(site, tmp_path, record=True, on_note=notes.append) == [
        tmp_path / "a.json",
        tmp_path / "deep" / "b.json",
    ]
    assert (tmp_path / "a.json").read_bytes() == BODY
    lock = json.loads((tmp_path / LOCK).read_text())
    assert lock["files"]["a.json"] == {"sha256": SHA, "size": len(BODY)}
    assert (lock["release"], lock["licence"]) == ("toy", "CC0")
    assert fetch(site, tmp_path) == [] and len(site.requests) == 2 and notes == []
    assert sorted(p.name for p in tmp_path.iterdir()) == [".fetch.lock", "a.json", "deep", LOCK]


def test_a_cut_connection_goes_on_where_it_stopped(site, tmp_path):
    site.faults = ["cut", "cut"]
    fetch(site, tmp_path)
    assert (tmp_path / "a.json").read_bytes() == BODY
    assert [asked for path, asked in site.requests if path == "/a.json"] == [None, "bytes=400000-", "bytes=800000-"]
    site.faults, site.ranges = ["cut"], False
    fetch(site, tmp_path / "whole")
    assert (tmp_path / "whole" / "a.json").read_bytes() == BODY, "a server without ranges sends all again"


def test_a_part_that_was_complete_is_only_moved(site, tmp_path):
    target = tmp_path / "a.json"
    download(f"{site.url}/a.json", target)
    assert not target.exists()
    fetch(site, tmp_path)
    assert target.read_bytes() == BODY
    assert sum(path == "/a.json" for path, _ in site.requests) == 2


def test_a_file_that_changed_meanwhile_is_begun_anew(site, tmp_path):
    site.faults = ["cut", 404]
    with pytest.raises(DataError, match=r"400,000 bytes are kept in a.json.part"):
        fetch(site, tmp_path)
    site.files["/a.json"] = BODY[::-1]
    fetch(site, tmp_path)
    assert (tmp_path / "a.json").read_bytes() == BODY[::-1]


def test_a_kill_before_the_old_bytes_are_gone_does_not_mix_two_versions(site, tmp_path, monkeypatch):
    site.faults = ["cut", 404]
    with pytest.raises(DataError, match=r"400,000 bytes are kept"):
        fetch(site, tmp_path)
    site.files["/a.json"] = BODY[::-1]

    def write_and_die(path, data):
        write_json(path, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(downloading, "write_json", write_and_die)
        with pytest.raises(KeyboardInterrupt):
            fetch(site, tmp_path)
    fetch(site, tmp_path)
    assert (tmp_path / "a.json").read_bytes() == BODY[::-1]


class BrokenReply:
    """A reply whose connection breaks, as TLS says it, after its first block or in its head."""

    def __init__(self, reply):
        self.reply, self.reads = reply, 0

    def __getattr__(self, name):
        return getattr(self.reply, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.reply.close()

    def read(self, size):
        self.reads += 1
        if self.reads > 1:
            raise ssl.SSLError("bad record mac")
        return self.reply.read(size)


@each("place", ["head", "body"])
def test_a_broken_tls_connection_is_tried_again_and_told(site, tmp_path, monkeypatch, place):
    real, broken = downloading.urlopen, [True]

    def opened(*given, **more):
        if not any(broken):
            return real(*given, **more)
        broken.pop()
        if place == "head":
            raise ssl.SSLError("bad record mac")
        return BrokenReply(real(*given, **more))

    monkeypatch.setattr(downloading, "urlopen", opened)
    fetch(site, tmp_path)
    assert (tmp_path / "a.json").read_bytes() == BODY
    broken[:] = [True]
    kept = "" if place == "head" else r"; 262,144 bytes are kept in a.json.part"
    with pytest.raises(DataError, match=f"the connection broke: .*bad record mac.*{kept}"):
        get(site.release("a.json"), tmp_path / "once", tries=1)


@each("there", ["ftp://127.0.0.1/a.json", "file:///etc/passwd"])
def test_redirects_lead_to_the_web_alone(site, tmp_path, there):
    site.faults = [there]
    with pytest.raises(DataError, match=r"could not be fetched: .*(sent on to|302)"):
        get(site.release("a.json"), tmp_path, tries=1)


def test_tls_is_not_left_and_the_page_of_a_redirect_is_not_read(site, tmp_path):
    asked = downloading.Request("https://h/a")
    with pytest.raises(downloading.URLError, match="sent on to 'http://h/b', which is not https"):
        downloading._Redirects().redirect_request(asked, None, 302, "", {}, "http://h/b")
    site.faults = [f"{site.url}/a.json"]
    fetch(site, tmp_path)
    assert (tmp_path / "a.json").read_bytes() == BODY and site.unread
    for url in ("file:///etc/hostname", "ftp://host/a", "data:,x"):
        with pytest.raises(DataError, match="only http and https"):
            download(url, tmp_path / "a")


def test_a_full_disk_is_no_broken_connection(site, tmp_path):
    def full(path, have, total):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        download(f"{site.url}/a.json", tmp_path / "a.json", wait_s=0.01, on_progress=full)
    assert len(site.requests) == 1


def test_a_missing_file_is_said_at_once_and_a_busy_server_is_asked_again(site, tmp_path):
    with pytest.raises(DataError, match=r"gone.json: could not be fetched: .*/gone.json was answered 404 Not Found"):
        get(site.release("gone.json"), tmp_path, wait_s=0.01)
    assert len(site.requests) == 1
    site.faults = [503, 429]
    fetch(site, tmp_path)
    assert (tmp_path / "a.json").read_bytes() == BODY
    site.faults = [503] * 9
    with pytest.raises(DataError, match="503"):
        get(site.release("a.json"), tmp_path / "other", tries=3, wait_s=0.01)
    assert not (tmp_path / "other" / "a.json").exists()
    site.server.shutdown()
    site.server.server_close()
    with pytest.raises(DataError, match=r"could not be fetched: http://.* failed: Connection refused"):
        download(f"{site.url}/a.json", tmp_path / "a.json", tries=1)


def test_a_wrong_checksum_leaves_what_is_there_alone(site, tmp_path):
    fetch(site, tmp_path, record=True)
    site.files["/a.json"] = b"changed"
    assert fetch(site, tmp_path) == []
    (tmp_path / "a.json").write_bytes(b"damaged here")
    with pytest.raises(DataError, match=rf"came with SHA-256 .* \(7 bytes\), the lock says {SHA} \(1,024,000 bytes\)"):
        fetch(site, tmp_path)
    assert (tmp_path / "a.json").read_bytes() == b"damaged here"
    assert not part_of(tmp_path / "a.json").exists()
    site.files["/a.json"] = BODY
    assert fetch(site, tmp_path) == [tmp_path / "a.json"]
    assert (tmp_path / "a.json").read_bytes() == BODY


def test_what_others_report_is_a_note_not_an_error(site, tmp_path):
    notes: list[str] = []
    known = site.release("a.json", reported=SHA, reported_by="a reader")
    get(known, tmp_path / "1", on_note=notes.append)
    get(site.release("a.json", reported="0" * 64, reported_by="a reader"), tmp_path / "2", on_note=notes.append)
    assert notes[0] == "a.json has the SHA-256 that is reported by a reader"
    assert notes[2].startswith(f"a.json has SHA-256 {SHA}, not 0000")


@pytest.mark.slow
def test_a_killed_download_leaves_no_file_and_goes_on(site, tmp_path):
    site.pause = 0.05
    code = (
        "import sys; from pathlib import Path; from gnnrag.datasets.fetch import download\n"
        f"download('{site.url}/a.json', Path(sys.argv[1]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a.json")])
    part, deadline = part_of(tmp_path / "a.json"), time.monotonic() + 60
    while not (part.exists() and part.stat().st_size > 200_000):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    have = part.stat().st_size
    assert 0 < have < len(BODY) and not (tmp_path / "a.json").exists()
    site.pause = 0.0
    fetch(site, tmp_path)
    assert (tmp_path / "a.json").read_bytes() == BODY
    assert ("/a.json", f"bytes={have}-") in site.requests


# ------------------------------------------------------------------------------------------------- locks and verify
def test_verify_says_what_differs(site, tmp_path):
    fetch(site, tmp_path, record=True)
    lock, known = read_lock(tmp_path / LOCK), site.release("a.json", "deep/b.json", "c.json")
    assert [(c.path, c.state) for c in verify(tmp_path, lock, known)] == [
        ("a.json", "same"),
        ("deep/b.json", "same"),
        ("c.json", "not locked"),
    ]
    (tmp_path / "a.json").write_bytes(BODY + b" ")
    (tmp_path / "deep" / "b.json").unlink()
    assert [(c.state, c.is_wrong) for c in verify(tmp_path, lock)] == [("differs", True), ("missing", True)]


def test_files_fetched_by_hand_are_recorded_and_then_kept(site, tmp_path):
    known = site.release("a.json", "b.json")
    with pytest.raises(DataError, match=r"holds no file of toy.*https://toy.example"):
        write_down(known, tmp_path)
    (tmp_path / "a.json").write_bytes(BODY)
    write_down(known, tmp_path)
    (tmp_path / "b.json").write_bytes(b"1")
    write_down(known, tmp_path)
    assert set(read_lock(tmp_path / LOCK).files) == {"a.json", "b.json"}
    (tmp_path / "a.json").write_bytes(b"2")
    with pytest.raises(DataError, match=f"the lock says {SHA}"):
        write_down(known, tmp_path)


@each(
    "content",
    [
        "{",
        "[]",
        '{"release": "toy"}',
        '{"release": "toy", "files": {"a": {}}}',
        '{"release": "toy", "files": {"a": {"sha256": "xyz", "size": 1}}}',
        '{"release": "toy", "files": {"../a": {"sha256": "' + "0" * 64 + '", "size": 1}}}',
    ],
)
def test_a_damaged_lock_is_refused(tmp_path, content):
    (tmp_path / LOCK).write_text(content)
    with pytest.raises(DataError, match="is damaged"):
        read_lock(tmp_path / LOCK)


def test_a_lock_of_another_release_and_two_at_once_are_refused(site, tmp_path):
    fetch(site, tmp_path, record=True)
    with pytest.raises(DataError, match="is about toy, not other"):
        read_lock(tmp_path / LOCK, "other")
    site.pause = 0.05
    other = threading.Thread(target=lambda: fetch(site, tmp_path / "x"))
    other.start()
    time.sleep(0.2)
    with pytest.raises(GnnragError, match="being written by another process"):
        fetch(site, tmp_path / "x")
    other.join()


# --------------------------------------------------------------------------------------------- the known releases
def test_the_releases_are_described():
    known = releases()
    assert {"2wiki", "musique", "hotpotqa", "metaqa", "popqa", "nq", "multihop_rag", "graphrag_bench"} <= known.keys()
    assert {"textbook_bench", "ultradomain"} <= known.keys()
    for found in known.values():
        assert found.page.startswith("https://") and found.licence and found.files
        assert all(file.url is None or file.url.startswith("https://") for file in found.files)
        assert all((file.reported is None) == (file.reported_by == "") for file in found.files)
        assert found.page in described(found) and f"data.path=data/{found.name}" in described(found)
    assert release("ultradomain").only("cs.jsonl, mix.jsonl").files[1].path == "mix.jsonl"
    with pytest.raises(ConfigError, match=r"only=css.jsonl: .*Did you mean 'cs.jsonl'"):
        release("ultradomain").only("css.jsonl")
    with pytest.raises(ConfigError, match="Did you mean 'ultradomain'"):
        release("ultradomian")


@each(
    "path, title",
    [
        ("data/UltraDomain/cs.jsonl", "UltraDomain"),
        ("data/graphrag-bench/novel", "Xiang"),
        ("data/GraphRAG-Benchmark/Datasets/Corpus/novel.json", "Xiang"),
        ("data/multihop-rag", "MultiHop-RAG"),
        ("data/2wikimultihopqa", "2Wiki"),
        ("release/musique_corpus.json", "MuSiQue"),
        ("data/mine", ""),
    ],
)
def test_a_missing_benchmark_is_told_where_it_is(tmp_path, path, title):
    from gnnrag.datasets.base import load_dataset

    assert bool(advice(tmp_path / path)) == bool(title) and title in advice(tmp_path / path)
    with pytest.raises(DataError, match=f"does not exist.*{title}"):
        load_dataset(tmp_path / path)
    (tmp_path / "multihop-rag").mkdir()
    with pytest.raises(DataError, match=r"holds no documents.*It is empty. MultiHop-RAG.*fetch get multihop_rag"):
        load_dataset(tmp_path / "multihop-rag")


@each(
    "text",
    [
        "- a",
        "toy: {}",
        "toy: [",
        "toy: {title: t, page: p, licence: l, size: s, url: u, read: [.], files: {../x: {}}}",
        "toy: {title: t, page: p, licence: l, size: s, url: u, read: [], files: {x: {reported: {sha256: a, by: me}}}}",
    ],
)
def test_a_broken_list_of_releases_is_refused(text):
    with pytest.raises(DataError, match="is no list of releases"):
        read_releases(text)


# ------------------------------------------------------------------------------------------------------ the script
def test_the_script_gets_records_and_verifies(site, tmp_path, monkeypatch, capsys):
    known = {"toy": site.release()}
    monkeypatch.setattr(script, "releases", lambda: known)
    monkeypatch.setattr(script, "release", known.__getitem__)
    assert script.main(["list"]) == 0
    out = capsys.readouterr().out
    assert "A toy" in out and "by get" in out and script.fetched_by(release("metaqa")) == "by hand"
    assert script.main(["show", "toy"]) == 0 and "UNKNOWN" in capsys.readouterr().out
    assert script.main(["get", "toy", str(tmp_path), "--record"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "a.json"), str(tmp_path / "deep" / "b.json")]
    assert script.main(["verify", str(tmp_path)]) == 0 and "same" in capsys.readouterr().out
    (tmp_path / "a.json").write_bytes(b"1")
    assert script.main(["verify", str(tmp_path)]) == 1 and "differs" in capsys.readouterr().out
    (tmp_path / "a.json").write_bytes(BODY)
    assert script.main(["record", "toy", str(tmp_path), f"lock={tmp_path / 'other.json'}"]) == 0
    assert script.main(["verify", str(tmp_path), f"lock={tmp_path / 'other.json'}"]) == 0
    for words in ([], ["got", "x"], ["get", "toy"], ["verify", "a", "b"], ["list", "tries=3"], ["-x"]):
        with pytest.raises(GnnragError):
            script.main(words)
