"""Fit the weights of the offline router, and print its confusion matrix on questions that the fit has not seen.

    python benchmarks/fit_router.py [../shared/data]

Multi-hop questions are the `dev` questions of the sample corpus, 2wiki, musique and hotpotqa; passage-local are the
sub-questions of musique's and the sample's decompositions with their references filled in, 2wiki's evidence triples as
questions, and those of `router_questions.txt`, where the thematic ones are too. One question in three is held out, by
the hash of its text. Prints the lines of `CUES`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from running import run
from scipy.optimize import minimize
from single_hops import single_hops

from gnnrag.datasets.base import load_dataset
from gnnrag.roles.base import QUERY_CLASSES
from gnnrag.roles.router import CUES, class_of, read_cues

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parents[1] / "data" / "sample"
L2 = 0.002  # by five-fold cross-validation on the fitted part
Row = tuple[str, str, str]  # class, source, text


def rows(data: Path) -> Iterator[Row]:
    """Yield all labelled questions, none twice."""
    for folder in (SAMPLE, data / "2wiki", data / "musique", data / "hotpotqa"):
        questions = load_dataset(folder, "dev").questions
        yield from ((class_of(q)[0], folder.name, q.text) for q in questions if q.type != "unanswerable")
        yield from (("passage_local", f"{folder.name} hops", text) for text, _, _ in single_hops(questions))
    for line in (HERE / "router_questions.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, _, text = line.partition("\t")
            yield name, "written", text


def held_out(text: str) -> bool:
    """Say whether a question is kept from the fit."""
    return hashlib.sha256(text.encode()).digest()[0] % 3 == 0


def fit(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Multinomial logistic regression with an L2 penalty; returns (classes, cues)."""
    shape = (len(QUERY_CLASSES), x.shape[1])
    one_hot = np.eye(len(QUERY_CLASSES))[y]
    penalised = np.ones(x.shape[1]) * L2
    penalised[0] = 0.0  # not the constant

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape)
        scores = x @ w.T
        scores -= scores.max(axis=1, keepdims=True)
        log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        value = -(weights * (one_hot * log_p).sum(axis=1)).sum() + 0.5 * (penalised * w**2).sum()
        gradient = ((np.exp(log_p) - one_hot) * weights[:, None]).T @ x + penalised * w
        return float(value), gradient.ravel()

    return minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x.reshape(shape)


def report(title: str, y: np.ndarray, chosen: np.ndarray) -> None:
    """Print a confusion matrix: rows are the labels."""
    print(f"\n{title}: {int((y == chosen).sum())} of {len(y)} right")
    print(f"{'':16}" + "".join(f"{name:>15}" for name in QUERY_CLASSES))
    for i, name in enumerate(QUERY_CLASSES):
        print(f"{name:16}" + "".join(f"{int(((y == i) & (chosen == j)).sum()):15}" for j in range(len(QUERY_CLASSES))))


def decide(p: np.ndarray) -> np.ndarray:
    """Apply the router's rules with their default thresholds."""
    return np.where(p[:, 2] >= 0.6, 2, np.where(p[:, 1] >= 0.5, 1, 0))


def weigh(found: list[Row]) -> np.ndarray:
    """Return weights under which classes count the same, and within a class its sources."""
    groups = Counter((name, source) for name, source, _ in found)
    per_class = Counter(name for name, _ in groups)
    return np.array([1.0 / (groups[name, source] * per_class[name]) for name, source, _ in found])


def predict(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the route of each question, as the router would choose it."""
    scores = x @ w.T
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return decide(p / p.sum(axis=1, keepdims=True))


def main(data: Path) -> None:
    """Fit and report."""
    found = list(dict.fromkeys(rows(data)))
    x = np.array([[read_cues(text)[name] for name in CUES] for _, _, text in found])
    y = np.array([QUERY_CLASSES.index(name) for name, _, _ in found])
    test = np.array([held_out(text) for _, _, text in found])
    w = fit(x[~test], y[~test], weigh([row for row, out in zip(found, test, strict=True) if not out])).round(3)
    chosen = predict(x, w)
    report("fitted on", y[~test], chosen[~test])
    report("held out", y[test], chosen[test])
    sources = np.array([source.partition(" ")[0] for _, source, _ in found])
    for source in ("2wiki", "musique", "hotpotqa", "sample"):
        out = sources == source
        rest = fit(x[~out], y[~out], weigh([row for row, left in zip(found, out, strict=True) if not left]))
        report(f"{source}, of which the fit saw nothing", y[out], predict(x[out], rest))
    print(f"\ndigest of the questions: {hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]}")
    for cue, column in zip(CUES, w.T, strict=True):
        print(f'    "{cue}": ({", ".join(f"{v:g}" for v in column)}),')


if __name__ == "__main__":
    run(lambda: main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data")), __doc__)
