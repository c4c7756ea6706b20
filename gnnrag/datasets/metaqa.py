"""Question files of the MetaQA release: `N-hop/vanilla/qa_<split>.txt`, with types in `N-hop/qa_<split>_qtype.txt`.

A line is the question, a tab, and the answers with `|` between them; the brackets around its anchor are removed.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from gnnrag.datasets.jsonl import read_lines
from gnnrag.errors import DataError
from gnnrag.types import Question

_ANCHOR = re.compile(r"\[([^\[\]]+)\]")
# What joins a film to a thing of each kind that types of questions name. All triples are of a film.
_OF_FILM = {
    "actor": "starred_actors", "director": "directed_by", "writer": "written_by", "year": "release_year",
    "genre": "has_genre", "language": "in_language", "tag": "has_tags", "tags": "has_tags",
    "imdbrating": "has_imdb_rating", "imdbvotes": "has_imdb_votes",
}  # fmt: skip


def question_files(folder: Path) -> list[tuple[str, Path]]:
    """Return (split, file) of the release's questions, such as `2-hop.dev`, sorted."""
    files = sorted(folder.glob("*-hop/vanilla/qa_*.txt"))
    return [(f"{file.parents[1].name}.{file.stem.removeprefix('qa_')}", file) for file in files]


def load_questions(path: Path) -> list[Question]:
    """Return a file's questions, `2-hop-dev-0` for line 0; DataError: a broken line, or a file of types out of step."""
    part, split = path.resolve().parents[1], path.stem.removeprefix("qa_")
    hops = re.fullmatch(r"(\d+)-hop", part.name)
    lines = list(read_lines(path))
    types = _types(part / f"qa_{split}_qtype.txt", len(lines))
    questions = []
    for i, (number, line) in enumerate(lines):
        text, _, rest = line.partition("\t")
        answers = tuple(dict.fromkeys(rest.split("|")))
        anchors = _ANCHOR.findall(text)
        if len(anchors) != 1 or not all(answer.strip() for answer in answers):
            problem = f"is {line[:80]!r}; each must be a question with one [anchor], a tab, and answers joined by |"
            raise DataError(path, problem, number)
        extra = {"anchor": anchors[0], **({"hops": int(hops[1])} if hops else {})}
        plain = _ANCHOR.sub(r"\1", text).strip()
        questions.append(Question(f"{part.name}-{split}-{i}", plain, answers, types[i], extra=extra))
    if not questions:
        raise DataError(path, "holds no questions")
    return questions


def relations_of(type_: str) -> tuple[str, ...]:
    """Return the relations of a type of questions, from anchor to answers; empty for a type that is none of MetaQA's.

    `actor_to_movie_to_year` is `("~starred_actors", "release_year")`: "~" stands for against its direction.
    """
    kinds = type_.split("_to_")
    relations = []
    for start, end in pairwise(kinds):
        if start == "movie" and end in _OF_FILM:
            relations.append(_OF_FILM[end])
        elif end == "movie" and start in _OF_FILM:
            relations.append(f"~{_OF_FILM[start]}")
        else:
            return ()
    return tuple(relations)


def _types(path: Path, count: int) -> list[str]:
    if not path.is_file():
        return ["unknown"] * count
    types = [line.strip() for _, line in read_lines(path)]
    if len(types) != count:
        raise DataError(
            path, f"has {len(types)} types for {count} questions; give each question a line, or delete the file"
        )
    return types
