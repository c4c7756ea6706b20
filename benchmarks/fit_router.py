"""Fit the weights of the offline router, and print its confusion matrix on questions that the fit has not seen.

    python benchmarks/fit_router.py [../shared/data]

Multi-hop questions are the `dev` questions of the sample corpus, 2wiki, musique and hotpotqa; passage-local are the
sub-questions of musique's and the sample's decompositions with their references filled in, 2wiki's evidence triples as
questions, and those of `router_questions.txt`, where the thematic ones are too. One question in three is held out, by
the hash of its text. Classes count the same, and within a class its sources. Prints the lines of `CUES`.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from running import ROOT, run
from sklearn.linear_model import LogisticRegression

from gnnrag.datasets.base import load_dataset
from gnnrag.roles.base import QUERY_CLASSES
from gnnrag.roles.router import CUES, class_of, read_cues
from gnnrag.types import Question

Row = tuple[str, str, str]  # class, source, text
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


def single_hops(questions: Iterable[Question]) -> Iterator[str]:
    """Yield each hop as a question."""
    for question in questions:
        answers: list[str] = []
        for hop in question.decomposition:
            text = re.sub(r"#(\d+)", lambda m, a=answers: a[int(m[1]) - 1], hop.question)
            answers.append(hop.answer)
            head, arrow, relation = text.partition(" >> ")
            plain = text.replace(" ?", "?").replace(" 's", "'s")
            yield question_of(relation.strip(), head.strip()) if arrow else plain
        for head, relation, _ in () if question.decomposition else question.evidence:
            yield question_of(relation, head)


def rows(data: Path) -> Iterator[Row]:
    """Yield all labelled questions."""
    for folder in (ROOT / "data" / "sample", data / "2wiki", data / "musique", data / "hotpotqa"):
        questions = load_dataset(folder, "dev").questions
        yield from ((class_of(q)[0], folder.name, q.text) for q in questions if q.type != "unanswerable")
        yield from (("passage_local", f"{folder.name} hops", text) for text in single_hops(questions))
    for line in (ROOT / "benchmarks" / "router_questions.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, _, text = line.partition("\t")
            yield name, "written", text


def weigh(found: list[Row]) -> list[float]:
    """Return the weight of each question."""
    groups = Counter((name, source) for name, source, _ in found)
    per_class = Counter(name for name, _ in groups)
    return [1.0 / (groups[name, source] * per_class[name]) for name, source, _ in found]


def report(title: str, y: np.ndarray, scores: np.ndarray) -> None:
    """Print the confusion matrix of what the router chooses with its default thresholds: rows are the labels."""
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = odds / odds.sum(axis=1, keepdims=True)
    chosen = np.where(p[:, 2] >= 0.6, 2, np.where(p[:, 1] >= 0.5, 1, 0))
    print(f"\n{title}: {int((y == chosen).sum())} of {len(y)} right")
    print(f"{'':16}" + "".join(f"{name:>15}" for name in QUERY_CLASSES))
    for i, name in enumerate(QUERY_CLASSES):
        print(f"{name:16}" + "".join(f"{int(((y == i) & (chosen == j)).sum()):15}" for j in range(len(QUERY_CLASSES))))


def main(data: Path) -> None:
    """Fit and report."""
    found = list(dict.fromkeys(rows(data)))
    cues = [name for name in CUES if name != "constant"]
    x = np.array([[read[name] for name in cues] for read in (read_cues(text) for _, _, text in found)])
    y = np.array([QUERY_CLASSES.index(name) for name, _, _ in found])
    sources = np.array([source.partition(" ")[0] for _, source, _ in found])
    test = np.array([hashlib.sha256(text.encode()).digest()[0] % 3 == 0 for _, _, text in found])

    def fitted(kept: np.ndarray) -> LogisticRegression:
        chosen = weigh([row for row, is_kept in zip(found, kept, strict=True) if is_kept])
        # The penalty by five-fold cross-validation on the fitted part.
        return LogisticRegression(C=500, max_iter=3000).fit(x[kept], y[kept], sample_weight=chosen)

    for source in ("2wiki", "musique", "hotpotqa", "sample"):
        out = sources == source
        report(f"{source}, of which the fit saw nothing", y[out], fitted(~out).decision_function(x[out]))
    model = fitted(~test)
    report("fitted on", y[~test], model.decision_function(x[~test]))
    report("held out", y[test], model.decision_function(x[test]))
    for cue, column in zip(["constant", *cues], np.column_stack([model.intercept_, model.coef_]).T, strict=True):
        print(f'    "{cue}": ({", ".join(f"{v:.3g}" for v in column)}),')


if __name__ == "__main__":
    run(lambda: main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data")), __doc__)
