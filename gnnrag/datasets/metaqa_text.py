"""MetaQA's knowledge base as a text corpus with questions (as DotRAG has it), by templates, without a model.

    python -m gnnrag.datasets.metaqa_text data/metaqa runs/metaqa-text [--questions 300] [--seed 0]

An entity gets one article for each 25 of its neighbours. A triple is a sentence in the articles of both its ends, by
one of several templates that a hash chooses; it says nothing that the triple does not say. `kb.txt` stands beside the
`corpus.jsonl`, for `index.extract.method=kb` with the folder as its path.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer
import yaml  # type: ignore[import-untyped]

from gnnrag.datasets import kb
from gnnrag.datasets.jsonl import Skips, read_json
from gnnrag.datasets.kb import RELATIONS, Part, Triple, kinds_of, parts_of
from gnnrag.errors import DataError
from gnnrag.io import digest, write_atomic, write_folder, write_json, write_jsonl
from gnnrag.types import Passage

SOURCE = "SOURCE.json"


@cache
def templates() -> dict[str, dict[str, list[str]]]:
    """Return of each relation the sentences for the article of its `head`, and those for the article of its `tail`."""
    return yaml.safe_load((files("gnnrag.datasets") / "metaqa_sentences.yaml").read_text("utf-8"))


# The paragraphs of an article: the relations that each tells, and how it begins. Unknown relations come last.
PARAGRAPHS = (
    (("directed_by", "written_by"), "Of the making of {topic} the following is known, name by name."),
    (("starred_actors",), "Of the cast that goes with {topic} the following is known, name by name."),
    (("release_year", "in_language", "has_genre"), "Some facts place {topic} among the other titles."),
    (("has_tags", "has_imdb_rating", "has_imdb_votes"), "Viewers have had their say on {topic} as well."),
    ((), "Further facts about {topic} are these."),
)
ABOUT = {
    "person": "The lines below tell of a life in films, one statement after the other and without anything invented.",
    "movie": "The lines below sum up what is known of it, one statement after the other and without anything invented.",
}
OVERVIEW = "The lines below give an overview of what goes with it, one statement after the other."
_PARTICLE = r"(?:da|das|de|del|della|den|der|di|do|dos|du|la|le|ten|the|van|von|y|zu)"
_NAME_LIKE = re.compile(rf"[^\W\d_a-z][\w.'’\-]*(?:,? (?:{_PARTICLE} )*[^\W\d_a-z][\w.'’\-]*)*")


def quoted(name: str, role: str) -> str:
    """Return a name, in quotation marks where a reader could not tell where it ends (`10 Things I Hate About You`)."""
    if "“" in name or "”" in name:
        return name
    is_plain = name.isdigit() if role == "year" else _NAME_LIKE.fullmatch(name)
    return name if is_plain and role not in ("movie", "tag", "rating", "votes") else f"“{name}”"


def sentence(triple: Triple, topic: str, seed: int | None = 0) -> str:
    """Return a triple as a sentence of the article on `topic`, one of its ends; without a seed the first template."""
    head, relation, tail = triple
    # The words of an unknown relation are no placeholders.
    unknown = ["{head} " + relation.replace("_", " ").replace("{", "{{").replace("}", "}}") + " {tail}."]
    sentences = templates().get(relation, {}).get("head" if topic == head else "tail", unknown)
    choice = 0 if seed is None else int(digest([seed, *triple, topic])[:8], 16) % len(sentences)
    template, known = sentences[choice], RELATIONS.get(relation)
    head_role, tail_role = (known.head_type, known.tail_type) if known else ("", "")
    text = template.format(head=quoted(head, head_role), tail=quoted(tail, tail_role))
    # A name at the end may bring its own full stop (Sammy Davis Jr.), unless a quotation mark closes it.
    last = tail if template.endswith("{tail}.") else head if template.endswith("{head}.") else ""
    return text[:-1] if last.endswith((".", "!", "?")) and not text.endswith("”.") else text


def article(part: Part, seed: int = 0) -> tuple[str, list[str]]:
    """Return the article of a part and the neighbours that it mentions (all of them), in their order."""
    topic = quoted(part.name, "movie" if "movie" in part.type.split("|") else part.type)
    kinds = kinds_of(part.type)
    opening = f"{topic} is {' and '.join(kinds)}." if kinds else f"{topic} is what this article is about."
    paragraphs, mentioned = [f"{opening} {ABOUT.get(part.type, OVERVIEW)}"], dict[str, None]()
    for relations, first in PARAGRAPHS:
        facts = [t for t in part.triples if (t[1] in relations if relations else t[1] not in RELATIONS)]
        if facts:
            facts.sort(key=lambda t: relations.index(t[1]) if relations else 0)
            stated = " ".join(sentence(fact, part.name, seed) for fact in facts)
            paragraphs.append(f"{first.format(topic=topic)} {stated}")
            mentioned |= dict.fromkeys(t[2] if t[0] == part.name else t[0] for t in facts)
    return "\n\n".join(paragraphs), list(mentioned)


def write_text(source: Path, out: Path, questions: int | None = None, seed: int = 0) -> dict[str, int]:
    """Write the dataset folder `out` of a folder with `kb.txt`; return the numbers of what was written.

    The numbers are in `SOURCE.json`, too.

    Args:
        source: a folder with `kb.txt`, and perhaps questions (`gnnrag.datasets.kb`).
        out: the folder to write, which must not exist; it appears whole or not at all.
        questions: how many of each file, drawn by a hash; None for all.
        seed: of that draw, and of the choice among templates.

    Raises DataError for a broken knowledge base or questions, FileExistsError where `out` exists.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; delete it, or give another folder")
    triples = kb.read_triples(source / kb.FILE, Skips())
    parts = list(parts_of(triples))
    rows = {"corpus.jsonl": [{"id": p.id, "title": p.name, "text": article(p, seed)[0]} for p in parts]}
    rows |= _question_rows(source, kb.load_passages(source, Skips()), questions, seed)
    counts = {name: len(values) for name, values in rows.items()}

    def write(folder: Path) -> None:
        for name, values in rows.items():
            write_jsonl(folder / name, values)
        write_atomic(folder / kb.FILE, "".join(f"{h}|{r}|{t}\n" for h, r, t in triples))
        origin = "MetaQA's knowledge base as text, by templates (gnnrag.datasets.metaqa_text)"
        licence = "that of the knowledge base: CC BY 3.0 for MetaQA, see data/README.md"
        write_json(folder / SOURCE, {"origin": origin, "licence": licence, "seed": seed, "counts": counts})

    write_folder(out, write)
    return counts


def _question_rows(
    source: Path, passages: list[Passage], count: int | None, seed: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of `questions.SPLIT.jsonl` for each file (`2-hop.dev`) and for all of its split (`dev`)."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, file in kb.splits(source):
        asked = kb.load_questions([file], passages)
        drawn = set(sorted(range(len(asked)), key=lambda i: digest([seed, asked[i].id]))[:count])
        for split in dict.fromkeys((name, name.rpartition(".")[2])):
            rows.setdefault(f"questions.{split}.jsonl", []).extend(
                {"id": q.id, "question": q.text, "answers": q.answers, "type": q.type, "gold": q.gold, **q.extra}
                for i, q in enumerate(asked)
                if i in drawn
            )
    return rows


def read_seed(folder: Path) -> int:
    """Return the seed by which the articles of a folder were written. DataError: `SOURCE.json` does not say."""
    seed = read_json(folder / SOURCE).get("seed")
    if not isinstance(seed, int):
        raise DataError(folder / SOURCE, "has no 'seed': the folder was not written by gnnrag.datasets.metaqa_text")
    return seed


if __name__ == "__main__":
    typer.run(write_text)
