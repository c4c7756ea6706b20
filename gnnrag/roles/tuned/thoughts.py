"""Thoughts by a model trained here: a selector that ranks candidate queries, a next-hop encoder, or a language model.

The selector sees each candidate as features (about in [0, 1]) and all of them as their mean; the slow query is chosen
with the fast one in view. Candidates are looked up in the index first: the passages near one say more than its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.common.records import WEIGHTS, check_shapes, fill, load_tensors, read_settings, save_tensors
from gnnrag.common.waiting import MicroBatcher
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.index import Index
from gnnrag.roles.base import Role, Thoughts, ThoughtsTask
from gnnrag.roles.candidates import HIT, KINDS, CandidateBuilder, HitDescriber, Reading, ThoughtCandidate
from gnnrag.roles.tuned.checkpoint import (
    LANGUAGE_KINDS,
    RECORD,
    LanguageRoleConfig,
    TunedRecord,
    open_language_role,
    read_tuned,
    role_folder,
    write_tuned,
)
from gnnrag.roles.tuned.encoder import KIND as ENCODER
from gnnrag.roles.tuned.encoder import NextHop
from gnnrag.roles.tuned.vector_thoughts import VectorThoughts
from gnnrag.session import Session
from gnnrag.text.normalise import words

KIND = "selector"
PICKED = ("picked", "picked_cosine", "picked_same_hit", "picked_hit_shared", "picked_hit_found")
_SPREAD = 0.05  # least standard deviation that a feature is divided by
_FAR = 5.0  # deviations beyond which a feature is cut


@dataclass
class SelectorConfig:
    """Size of the network, and how it is used."""

    hidden: int = 48
    dropout: float = 0.1
    is_guess: bool = False  # methods treat its queries as those of rules: by rank, below the question's own
    candidates: int = 60  # most candidates of a decision; filled in by the training
    features: list[str] = field(default_factory=list)  # names of what it sees, in order; filled in by the training


@dataclass(frozen=True, eq=False)
class Options:
    """The candidates of a decision, as a selector sees them."""

    features: np.ndarray  # (n, F) float32
    vectors: np.ndarray  # (n, dim) float32 unit rows of their texts
    hits: np.ndarray  # (n, TOP) positions of their nearest passages, best first

    def __len__(self) -> int:
        return len(self.features)

    def beside(self, picked: int | None) -> np.ndarray:
        """Return the features with what each candidate shares with a picked one. Shape (n, F + len(PICKED))."""
        more = np.zeros((len(self), len(PICKED)), dtype=np.float32)
        if picked is not None:
            first, theirs = self.hits[:, 0], self.hits[picked]
            columns = (
                np.ones(len(self)),
                self.vectors @ self.vectors[picked],
                first == theirs[0],
                np.isin(first, theirs),
                (self.hits == theirs[0]).any(axis=1),
            )
            more[:] = np.stack(columns, axis=1)
        return np.concatenate([self.features, more], axis=1)


class Selector(nn.Module):
    """Scores candidates, and `none of them`."""

    mean: Tensor
    spread: Tensor

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.config = config
        size, hidden = len(config.features) + len(PICKED), config.hidden
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("spread", torch.ones(size))
        self.inner = nn.Linear(size, hidden)
        self.outer = nn.Linear(2 * hidden, hidden)
        self.score, self.none = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def scale(self, rows: np.ndarray) -> None:
        """Take mean and spread of features from training rows of shape (n, F + len(PICKED))."""
        spread = np.maximum(rows.std(axis=0, dtype=np.float64), _SPREAD)
        self.mean.copy_(torch.from_numpy(rows.mean(axis=0, dtype=np.float64)))
        self.spread.copy_(torch.from_numpy(spread))

    def forward(self, features: Tensor, mask: Tensor, keep: Tensor | None = None) -> Tensor:
        """Score features (batch, n, F + len(PICKED)) as (batch, n + 1), the last column for none of the candidates.

        `mask` (batch, n) is false for filler. `keep` (batch, 2, hidden) are factors of the hidden layers, one for all
        candidates of a decision: dropout that the caller draws, so that it follows from the item.
        """
        scaled = ((features - self.mean) / self.spread).clamp(-_FAR, _FAR)
        own = nn.functional.gelu(self.inner(scaled))
        own = own if keep is None else own * keep[:, :1]
        weight = mask.unsqueeze(-1).to(own.dtype)
        every = (own * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        both = torch.cat([own, every.unsqueeze(1).expand_as(own)], dim=-1)
        outer = nn.functional.gelu(self.outer(both))
        scores = self.score(outer if keep is None else outer * keep[:, 1:]).squeeze(-1)
        return torch.cat([scores.masked_fill(~mask, -torch.inf), self.none(every)], dim=1)

    @torch.no_grad()
    def logits(self, options: Options, picked: int | None = None) -> np.ndarray:
        """Return the scores of one decision's candidates and of none. Shape (n + 1,)."""
        rows = torch.from_numpy(options.beside(picked)).unsqueeze(0).to(self.mean.device)
        mask = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
        return self(rows, mask)[0].float().cpu().numpy()

    def pick(self, options: Options) -> tuple[int | None, int | None]:
        """Return the places of the fast and the slow query; None where none is better."""
        if not len(options):
            return None, None
        fast = self._best(self.logits(options))
        if fast is None:
            return None, None
        scores = self.logits(options, fast)
        scores[fast] = -np.inf
        return fast, self._best(scores)

    def _best(self, scores: np.ndarray) -> int | None:
        best = int(scores.argmax())
        return best if best < len(scores) - 1 else None


def stack(rows: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return rows of different lengths as one tensor (batch, n, F), and the mask (batch, n) of what is no filler."""
    longest = max(len(row) for row in rows)
    features = np.zeros((len(rows), longest, rows[0].shape[1]), dtype=np.float32)
    mask = np.zeros(features.shape[:2], dtype=bool)
    for i, row in enumerate(rows):
        features[i, : len(row)], mask[i, : len(row)] = row, True
    return torch.from_numpy(features), torch.from_numpy(mask)


def save_selector(folder: Path, model: Selector, base: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint; `base` names the embedder whose vectors it was trained on."""
    save_tensors(folder / WEIGHTS, model.state_dict())
    write_tuned(folder, TunedRecord("thoughts", KIND, dict(base), asdict(model.config), dict(facts)))


def load_selector(folder: Path, record: TunedRecord, features: Sequence[str]) -> Selector:
    """Return a checkpoint's network; ArtefactError: weights of another architecture, or other features."""
    config = read_settings(SelectorConfig, record.settings, folder / RECORD)
    if list(config.features) != list(features):
        odd = sorted(set(config.features) ^ set(features))
        raise ArtefactError(
            f"{folder}: the selector sees other features than this version makes ({', '.join(odd[:3]) or 'their order'}"
            " differs); train again"
        )
    tensors = load_tensors(folder / WEIGHTS)
    with torch.device("meta"):
        check_shapes(Selector(config).state_dict(), tensors, folder / WEIGHTS)
    model = Selector(config)
    fill(model.state_dict(), tensors, folder / WEIGHTS)
    return model.eval()


TOP = 5  # hits of a candidate that are looked up
_DESCRIBED = 2  # hits whose passages are described
_QUERY = (
    "has_target", "words", "to_question", "to_open_part", "to_shown", "to_shown_mean", "to_clause", "to_earlier",
    "score", "margin", "margin_rest", "over_question", "aims",
)  # fmt: skip
_TASK = (
    "later_round", "anchors", "anchors_missing", "uncovered", "clauses", "compares", "best", "spread", "bridges",
)  # fmt: skip
FEATURES = (
    *(f"kind_{kind}" for kind in KINDS),
    *_QUERY,
    *(f"task_{name}" for name in _TASK),
    *(f"hit{n}_{name}" for n in range(1, _DESCRIBED + 1) for name in (*HIT, "own_lexical")),
)
_CHOICE = {"or", "both", "same", "older", "younger", "earlier", "later", "first"}  # words of comparisons


class FeatureMaker:
    """Makes the features of candidates."""

    def __init__(self, index: Index) -> None:
        self.index, self.hits = index, HitDescriber(index)

    def __call__(
        self, task: ThoughtsTask, reading: Reading, candidates: Sequence[ThoughtCandidate], vectors: np.ndarray
    ) -> Options:
        """Describe n candidates, whose texts have the vectors (n, dim) float32."""
        passages, count = self.index.passage_vectors, len(candidates)
        if not count:
            return Options(np.zeros((0, len(FEATURES)), np.float32), vectors, np.zeros((0, TOP), np.int64))
        cosines = np.stack([passages @ v for v in vectors])  # one product a query: no rounding depends on the others
        hits = np.argsort(-cosines, axis=1, kind="stable")[:, :TOP]
        scores = np.take_along_axis(cosines, hits, axis=1)
        of_question = passages @ reading.question.whole
        columns = self._of_queries(reading, candidates, vectors, scores, float(of_question.max()))
        columns["aims"] = np.array([c.target == hit for c, hit in zip(candidates, hits[:, 0].tolist(), strict=True)])
        columns |= {f"task_{k}": np.full(count, v) for k, v in self._of_task(task, reading, of_question).items()}
        lexical = self.index.bm25_scores([c.text for c in candidates])
        lexical /= np.maximum(lexical.max(axis=1, keepdims=True), 1e-9)
        needed = np.unique(hits[:, :_DESCRIBED])
        facts = self.hits(task, reading, needed, of_question, np.bincount(hits[:, 0], minlength=len(passages)))
        for n in range(_DESCRIBED):
            hit = hits[:, min(n, hits.shape[1] - 1)]
            rows = np.searchsorted(needed, hit)
            columns |= {f"hit{n + 1}_{name}": values[rows] for name, values in facts.items()}
            columns[f"hit{n + 1}_own_lexical"] = lexical[np.arange(count), hit]
        return Options(np.stack([columns[name] for name in FEATURES], axis=1).astype(np.float32), vectors, hits)

    def _of_queries(
        self,
        reading: Reading,
        candidates: Sequence[ThoughtCandidate],
        vectors: np.ndarray,
        scores: np.ndarray,
        best: float,
    ) -> dict[str, np.ndarray]:
        """Return what the texts of candidates, and the scores of what they find, say."""
        question, shown = reading.question, self.index.passage_vectors[list(reading.shown)]
        last = scores.shape[1] - 1
        columns = {f"kind_{kind}": np.array([c.kind == kind for c in candidates]) for kind in KINDS}
        return columns | {
            "has_target": np.array([c.target >= 0 for c in candidates]),
            "words": np.array([len(c.text.split()) / 10 for c in candidates]),
            "to_question": vectors @ question.whole,
            "to_open_part": vectors @ question.open_vector,
            "to_shown": _nearest(vectors, shown),
            "to_shown_mean": (vectors @ shown.T).mean(axis=1) if len(shown) else np.zeros(len(vectors)),
            "to_clause": _nearest(vectors, reading.clause_vectors),
            "to_earlier": _nearest(vectors, reading.earlier_vectors),
            "score": scores[:, 0],
            "margin": scores[:, 0] - scores[:, min(1, last)],
            "margin_rest": scores[:, min(1, last)] - scores[:, last],
            "over_question": scores[:, 0] - best,
        }

    def _of_task(self, task: ThoughtsTask, reading: Reading, of_question: np.ndarray) -> dict[str, float]:
        anchors = [a.passage for a in reading.question.anchors]
        return {
            "later_round": float(task.round > 1),
            "anchors": len(anchors) / 2,
            "anchors_missing": sum(a not in reading.shown for a in anchors) / 2,
            "uncovered": len(reading.uncovered) / 10,
            "clauses": len(reading.clauses) / 10,
            "compares": float(bool(_CHOICE & set(words(task.question.text)))),
            "best": float(of_question.max()),
            "spread": float(np.sort(of_question)[-TOP:].std()),
            "bridges": len(reading.bridges) / 20,
        }


def _nearest(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return each vector's largest cosine with one of the others; 0 without others."""
    return (vectors @ others.T).max(axis=1) if len(others) else np.zeros(len(vectors))


class OptionMaker:
    """Turns decisions into candidates and what a selector sees of them."""

    stages = CandidateBuilder.stages

    def __init__(self, index: Index, limit: int) -> None:
        self.index, self.builder, self.features = index, CandidateBuilder(index, limit), FeatureMaker(index)

    def __call__(self, tasks: Sequence[ThoughtsTask]) -> list[tuple[list[ThoughtCandidate], Options]]:
        """Return candidates and options of each task; all texts are embedded in one call."""
        readings = [self.builder.read(task) for task in tasks]
        rows = [self.builder.build(task, reading) for task, reading in zip(tasks, readings, strict=True)]
        texts = [candidate.text for row in rows for candidate in row]
        dim = self.index.passage_vectors.shape[1]
        vectors = self.index.embedder.encode(texts, is_query=True) if texts else np.zeros((0, dim), np.float32)
        ends = np.cumsum([len(row) for row in rows])
        parts = np.split(vectors, ends[:-1])
        found = zip(tasks, readings, rows, parts, strict=True)
        return [(row, self.features(task, reading, row, part)) for task, reading, row, part in found]


@dataclass
class TunedThoughtsConfig(LanguageRoleConfig):
    """Settings of `TunedThoughts`."""

    is_guess: bool | None = None  # methods treat its queries as those of rules; null: as its training was told, or no
    device: str = "auto"  # where an encoder runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    mixed: bool = False  # of an encoder: the slow query is that of the rules, in words, where they name what is missing


class TunedThoughts(Role[ThoughtsTask, Thoughts]):
    """Writes the next two queries with the model of a checkpoint.

    A selector builds candidates by rules and picks the best, and another beside it, or none. A next-hop encoder asks in
    vectors, of retrievers that search by them. Questions in flight share batches. ConfigError: no checkpoint is named,
    and none ships. ArtefactError: the checkpoint is missing, damaged, of another role or kind, or of another embedder.
    """

    config_class = TunedThoughtsConfig
    kinds = (KIND, ENCODER, *LANGUAGE_KINDS)
    stages = OptionMaker.stages

    @classmethod
    def asks_in_vectors(cls, path: str | None) -> bool:
        """Tell whether the checkpoint at `path` (None: the one that ships) is a next-hop encoder."""
        return read_tuned(role_folder("thoughts", path), "thoughts", cls.kinds).kind == ENCODER

    def __init__(self, index: Index, config: TunedThoughtsConfig | None = None) -> None:
        self.index, self.config = index, config or TunedThoughtsConfig()
        folder = role_folder("thoughts", self.config.path)
        record = read_tuned(folder, "thoughts", self.kinds)
        if self.config.mixed and record.kind != ENCODER:
            raise ConfigError(
                f"roles.thoughts.options.mixed=true: {folder} is a {record.kind}; an encoder's thoughts are mixed, "
                "give its folder as roles.thoughts.path"
            )
        self.fingerprint = record.fingerprint
        self.is_guess = bool(self.config.is_guess)
        self._language: Any = None
        if record.kind in LANGUAGE_KINDS:
            self._language = open_language_role(folder, record, "thoughts", self.config)
            self.prompters = self._language.prompters
            return
        self._batcher: MicroBatcher[ThoughtsTask, Thoughts] = MicroBatcher(self.think)
        self._vectors: VectorThoughts | None = None
        if record.kind == ENCODER:
            self._vectors = VectorThoughts(
                NextHop.open(index, str(folder), self.config.base, self.config.device, "thoughts.device"),
                self.config.mixed,
            )
            return
        self.model = load_selector(folder, record, FEATURES)
        _check_embedder(folder, record.base, index)
        if self.config.is_guess is None:
            self.is_guess = self.model.config.is_guess
        self.options = OptionMaker(index, self.model.config.candidates)

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Return the next two queries; None where no candidate is worth asking."""
        if self._language:
            return await self._language(task, session)
        (found,) = await self._batcher.results([task])
        return found

    def think(self, tasks: Sequence[ThoughtsTask]) -> list[Thoughts]:
        """The same for several decisions, synchronously; not of a language model."""
        if self._vectors:
            return self._vectors.think(tasks)
        thoughts = []
        for candidates, options in self.options(tasks):
            fast, slow = (None if i is None else candidates[i].text for i in self.model.pick(options))
            flags = () if fast else ("nothing_worth_asking",)
            thoughts.append(Thoughts(fast, slow, sufficient=fast is None, flags=flags))
        return thoughts

    async def close(self) -> None:
        """Let the model go."""
        if self._language:
            await self._language.close()
        else:
            self._batcher.close()


def _check_embedder(folder: Path, base: dict[str, Any], index: Index) -> None:
    """Raise ArtefactError where the vectors of the index are not those that a selector was trained on."""
    found = index.embedder.weights or index.embedder.identity
    if base.get("weights") != found:
        raise ArtefactError(
            f"{folder}: the selector was trained on vectors of {base.get('name')!r}, and the index was made with "
            f"{index.config.embedder.model!r}; build the index with that embedder, or train a selector for this one"
        )
