"""The hops of annotated multi-hop questions as questions of their own: passage-local ones with answers and gold.

    python tests/benchmarks/single_hops.py ../shared/data/musique > mixed.jsonl

prints the dev questions of a dataset followed by their hops (type `1hop`), for an audit that needs both classes:
`inference/audit.py configs/evaluate/musique.yaml data.questions=mixed.jsonl audit.labels=type`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from running import run

from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.text.normalise import drop_qualifier, phrase_key
from gnnrag.types import Question

# Words that turn a relation (`composer`, `date of birth`) into a question about its head.
FORMS = ("What is the {relation} of {head}?", "{head}: what is its {relation}?", "What {relation} does {head} have?")
PERSONS = ("Who is the {relation} of {head}?", "Who was {head}'s {relation}?")
PEOPLE = re.compile(r"director|composer|author|performer|father|mother|spouse|creator|founder|owner|child|sibling")
NATURAL = {
    "date of birth": ("When was {head} born?", "What is {head}'s date of birth?"),
    "place of birth": ("Where was {head} born?", "In which town was {head} born?"),
    "date of death": ("When did {head} die?",),
    "place of death": ("Where did {head} die?",),
    "country of citizenship": ("Which country is {head} from?", "What is {head}'s nationality?"),
    "publication date": ("When was {head} released?",),
    "director": ("Who directed {head}?", "Who is the director of {head}?"),
    "educated at": ("Where did {head} study?",),
    "performer": ("Who sang {head}?",),
}


def question_of(relation: str, head: str) -> str:
    """Word one triple as a question; which wording is taken depends on the head."""
    forms = NATURAL.get(relation) or (PERSONS if PEOPLE.fullmatch(relation) else FORMS)
    return forms[len(head) % len(forms)].format(relation=relation, head=head)


def single_hops(questions: Iterable[Question]) -> Iterator[tuple[str, str, str]]:
    """Yield each hop as text, answer, and its gold passage or, of a triple, the name that the passage is about."""
    for question in questions:
        answers: list[str] = []
        for hop in question.decomposition:
            text = re.sub(r"#(\d+)", lambda m, a=answers: a[int(m[1]) - 1], hop.question)
            answers.append(hop.answer)
            head, arrow, relation = text.partition(" >> ")
            plain = text.replace(" ?", "?").replace(" 's", "'s")
            yield question_of(relation.strip(), head.strip()) if arrow else plain, hop.answer, hop.gold or ""
        for head, relation, tail in () if question.decomposition else question.evidence:
            yield question_of(relation, head), tail, head


def mixed(data: Dataset) -> Iterator[dict[str, object]]:
    """Yield the questions of a dataset, then their distinct hops that have a gold passage, as canonical rows."""
    about: defaultdict[str, list[str]] = defaultdict(list)
    for passage in data.passages:
        about[phrase_key(drop_qualifier(passage.title))].append(passage.id)
    ids = {p.id for p in data.passages}
    for q in data.questions:
        yield {"id": q.id, "question": q.text, "answers": q.answers, "type": q.type, "gold": q.gold}
    seen: set[str] = set()
    for text, answer, gold in single_hops(data.questions):
        found = [gold] if gold in ids else about[phrase_key(drop_qualifier(gold))]
        if len(found) == 1 and text not in seen:
            seen.add(text)
            row = {"question": text, "answers": [answer], "type": "1hop", "gold": found}
            yield {"id": f"{data.name}-hop-{len(seen)}", **row}


def main() -> None:
    """Print a dataset's questions and their hops."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a dataset with dev questions, as data.path names it")
    for row in mixed(load_dataset(parser.parse_args().data, "dev")):
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    run(main, __doc__)
