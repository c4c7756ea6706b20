"""An index at scale: seconds and memory to build, open, ask and edit it, beside bm25s and faiss in the same run.

    python benchmarks/rename_corpus.py ../shared/data/2wiki data/made/2wiki-x16 --copies 16
    python benchmarks/bench_scale.py data/made/2wiki-x16 --index indexes/x16 [--edits 1000] [--questions 200] [--json]

Each step has a process of its own, so that its peak of memory is known. bm25s is compared where it is installed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from running import ROOT, run, timed

from gnnrag.cli.console import plain_table

SETTINGS = ["index.embedder.model=static", "retriever=chg", "method=single", "roles=offline"]
RETRIEVERS = ("bm25", "dense", "chg")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a corpus with questions, as data.path names it")
    parser.add_argument("--index", type=Path, required=True, help="where the index goes; one that is there is replaced")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--edits", type=int, default=1000, help="passages that are added, then removed")
    parser.add_argument("--keep", action="store_true", help="measure the index that is there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    figures: dict[str, Any] = {"cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    if not args.keep:
        shutil.rmtree(args.index, ignore_errors=True)
        command = ["index", "build", f"data.path={args.data}", f"index.path={args.index}", *SETTINGS]
        figures["build s"] = timed(
            lambda: subprocess.run([sys.executable, "-m", "gnnrag.cli.app", *command], check=True)
        )[0]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures |= {"build CPU s": used.ru_utime + used.ru_stime, "build GB": used.ru_maxrss / 1e6}
    size = sum(file.stat().st_size for file in args.index.rglob("*") if file.is_file())
    figures["index GB"] = size / 1e9
    for step in (ask, peers, edit):
        figures |= in_a_process(step, args)
    print(json.dumps(figures, indent=2) if args.json else plain_table(("figure", "value"), rows_of(figures)))


def rows_of(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a table."""
    return [(name, f"{value:.4g}" if isinstance(value, float) else str(value)) for name, value in figures.items()]


def in_a_process(step: Any, args: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a step that is run in a new process."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_put, args=(queue, step, args))
    process.start()
    figures = queue.get()
    process.join()
    return figures  # type: ignore[no-any-return]


def _put(queue: Any, step: Any, args: argparse.Namespace) -> None:
    queue.put(step(args))


def questions_of(args: argparse.Namespace) -> list[str]:
    """Return the questions that are asked, drawn over the whole file."""
    with (args.data / "questions.dev.jsonl").open() as lines:
        texts = [json.loads(line)["question"] for line in lines]
    return texts[:: max(1, len(texts) // args.questions)][: args.questions]


def ask(args: argparse.Namespace) -> dict[str, float]:
    """Open the index and search it."""
    from gnnrag.api import Index

    questions, figures = questions_of(args), {}
    settings = dict(dot.split("=") for dot in SETTINGS)
    start = time.perf_counter()
    index = Index(args.index, settings=settings)
    index.search(questions[0], retriever="bm25")
    figures["open and first answer s"] = time.perf_counter() - start
    for retriever in RETRIEVERS:
        figures[f"first {retriever} s"] = timed(lambda r=retriever: index.search(questions[0], retriever=r))[0]
        seconds = [timed(lambda q=q, r=retriever: index.search(q, retriever=r))[0] for q in questions]
        for share in (50, 95):
            figures[f"{retriever} p{share} ms"] = float(np.percentile(seconds, share) * 1e3)
    figures["asking GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    index.close()
    return figures


def peers(args: argparse.Namespace) -> dict[str, float]:
    """Index and search the same passages by bm25s and by faiss."""
    import faiss

    from gnnrag.index.index import Index

    index, questions, figures = Index(args.index), questions_of(args), {}
    vectors = np.ascontiguousarray(index.passage_vectors)
    flat: Any = faiss.IndexFlatIP(vectors.shape[1])
    figures["faiss flat build s"] = timed(lambda: flat.add(vectors))[0]
    asked = index.embedder.encode(questions, is_query=True)
    seconds = [timed(lambda v=v: flat.search(v[None], 200))[0] for v in asked]
    figures["faiss flat p50 ms"] = float(np.median(seconds) * 1e3)
    try:
        import bm25s
        import Stemmer
    except ImportError:
        return figures
    stem, model = Stemmer.Stemmer("english"), bm25s.BM25(method="lucene")

    def tokens(texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords="en", stemmer=stem, show_progress=False)

    contents = [passage.content for passage in index.passages]
    figures["bm25s build s"] = timed(lambda: model.index(tokens(contents), show_progress=False))[0]
    seconds = [timed(lambda q=q: model.retrieve(tokens([q]), k=200, show_progress=False))[0] for q in questions]
    figures["bm25s p50 ms"] = float(np.median(seconds) * 1e3)
    return figures


def edit(args: argparse.Namespace) -> dict[str, float]:
    """Add passages and remove them again, beside another process that searches for one of them."""
    from gnnrag.index.index import Index
    from gnnrag.index.update import update_index

    first = Index(args.index).passages[: args.edits]
    mark = time.time_ns()  # nothing that an earlier run computed serves
    new = [replace(p, id=f"{mark}-{p.id}", text=f"{p.text} It was added at {mark}.") for p in first]
    context = multiprocessing.get_context("spawn")
    figures: dict[str, float] = {}
    for name, change in (("add", {"add": new}), ("remove", {"remove": [p.id for p in new]})):
        queue = context.Queue()
        reader = context.Process(target=_follow, args=(queue, args.index, new[0].text, new[0].id))
        reader.start()
        queue.get()  # it has opened the index and searched it
        start = time.time()
        update_index(args.index, progress=lambda *_: None, **change)  # type: ignore[arg-type]
        figures[f"{name} and all artefacts s"] = time.time() - start
        figures |= {f"{name} {what} s": moment - start for what, moment in queue.get().items()}
        reader.join()
    figures["editing GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return figures


def _follow(queue: Any, root: Path, text: str, id_: str) -> None:
    """Put when (Unix time) another process's edit can be opened, and when each retriever's results show it."""
    import lance

    from gnnrag.api import Index
    from gnnrag.index.tables import PASSAGES

    with Index(root, settings=dict(dot.split("=") for dot in SETTINGS)) as index:
        for retriever in RETRIEVERS:
            index.search(text, retriever=retriever)
        was_there, before = id_ in index.stored.position, len(index)
        queue.put("ready")
        while lance.dataset(f"{root}/{PASSAGES}").count_rows() == before:
            time.sleep(0.02)
        moments = {"committed": time.time()}
        index.refresh()
        for retriever in RETRIEVERS:
            while (id_ in {hit.passage.id for hit in index.search(text, retriever=retriever)}) == was_there:
                time.sleep(0.02)
            moments[f"seen by {retriever}"] = time.time()
        queue.put(moments)


if __name__ == "__main__":
    os.chdir(ROOT)
    run(main, __doc__)
