"""Ask the questions of `tests/own_corpus` as a new user would: `python benchmarks/own_corpus.py OUT [key=value ...]`.

Writes `OUT/answers.json` and `OUT/answers.md`, a sheet for people to judge: question, reference, answer, the sentences
that it cites, whether it was stated or quoted, how sure it is. `--judged=FILE` (a line `ID useful|partly|useless|false`
each) prints the shares of the judgements, by kind.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gnnrag import Answer, Index
from tests.own_corpus import questions, write_documents

JUDGEMENTS = ("useful", "partly", "useless", "false")


def row_of(question: dict[str, Any], answer: Answer) -> dict[str, Any]:
    read = {passage.id.partition("#")[0].partition(":")[0] for passage in answer.context}
    return {
        **question,
        "answer": str(answer),
        "form": "failed" if answer.error else answer.form,
        "confidence": answer.confidence,
        "sources": [f"{citation.place}: {citation.sentence}" for citation in answer.citations],
        "was_read": bool(read & {*question["files"]}),  # a file with the answer was among the passages
        "seconds": round(answer.seconds, 2),
    }


def sheet(rows: list[dict[str, Any]]) -> str:
    lines = ["# Answers on the own corpus", ""]
    for row in rows:
        sure = "" if row["confidence"] is None else f", {row['confidence']:.2f}"
        lines += [f"## {row['id']}: {row['question']}", "", f"- reference: {row['reference'] or '(not said)'}"]
        lines += [f"- {row['form']}{sure}: {' '.join(row['answer'].split())}"]
        lines += [f"  - {source}" for source in row["sources"]] + [""]
    return "\n".join(lines)


def shares(rows: list[dict[str, Any]], judgements: dict[str, str]) -> str:
    """Return a Markdown table of judgements by kind of question."""
    kinds = [*dict.fromkeys(row["kind"] for row in rows), "all"]
    lines = [f"| kind | {' | '.join(JUDGEMENTS)} |", "| --- |" + " ---: |" * len(JUDGEMENTS)]
    for kind in kinds:
        counts = Counter(judgements[row["id"]] for row in rows if kind in (row["kind"], "all"))
        lines.append(f"| {kind} | {' | '.join(str(counts[name]) for name in JUDGEMENTS)} |")
    good = sum(judgements[row["id"]] in ("useful", "partly") for row in rows) / len(rows)
    wrong = sum(judgements[row["id"]] == "false" for row in rows) / len(rows)
    return "\n".join([*lines, "", f"useful or partly {good:.1%}, false {wrong:.1%}"])


def main() -> None:
    judged = [argument.removeprefix("--judged=") for argument in sys.argv[1:] if argument.startswith("--judged=")]
    out, *settings = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    folder = Path(out)
    if judged:
        rows = json.loads((folder / "answers.json").read_text("utf-8"))
        pairs = (line.split()[:2] for line in Path(judged[0]).read_text("utf-8").splitlines() if line.strip())
        sys.stdout.write(shares(rows, dict(pairs)) + "\n")
        return
    write_documents(folder / "documents")
    index = Index.build(folder / "documents", folder / "index", settings=dict(s.split("=", 1) for s in settings))
    rows = []
    for question in questions():
        rows.append(row_of(question, index.ask(question["question"])))
        sys.stderr.write(f"\r{len(rows)}")
    index.close()
    (folder / "answers.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1), "utf-8")
    (folder / "answers.md").write_text(sheet(rows), "utf-8")
    answerable = [row for row in rows if row["reference"]]
    counts = Counter(row["form"] for row in rows)
    sys.stdout.write(f"{dict(counts)}; read {sum(row['was_read'] for row in answerable)} of {len(answerable)}\n")


if __name__ == "__main__":
    main()
