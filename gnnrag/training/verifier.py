"""Training of the cross-encoder verifier by sentence-transformers' CrossEncoderTrainer, on lists of passages."""

from __future__ import annotations

import gc
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments, losses
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.evaluation import BinaryClassificationEvaluator

from gnnrag.errors import ConfigError, DataError
from gnnrag.networks import model_folder, quiet_loading
from gnnrag.roles.tuned.checkpoint import TunedRecord, base_record, write_tuned
from gnnrag.roles.tuned.verifier import KIND, Selection, load_cross_encoder, pairs_of, scores_of
from gnnrag.training.base import TOP, Report, arguments, by_question, promotion_metrics
from gnnrag.training.config import Count, TrainConfig
from gnnrag.training.rows import VerifierRow
from gnnrag.training.sets import RowsTraining, VerifierRowsConfig

# `mini_batch_size=-1`: one forward pass for all lists of a process, which several processes need.
LOSSES: dict[str, Callable[..., Any]] = {"lambda": losses.LambdaLoss, "listnet": losses.ListNetLoss}
SUMMARY = (
    "A cross-encoder (`sentence_transformers.CrossEncoder`) that scores how much a passage supports a question's chain "
    "of reasoning. Use it with `roles.verifier=tuned roles.verifier.path=THIS_FOLDER`."
)


@dataclass
class CrossEncoderConfig:
    base: str = "embedded"  # an encoder or cross-encoder: the embedded MiniLM, a folder, or a name on the hub
    max_tokens: Annotated[int, Ge(16)] = 192  # of a pair; the longer part of it is cut first
    # of LoRA (PEFT) on all linear layers, merged when it is saved; 0: all weights train
    rank: Annotated[int, Ge(0)] = 0


@dataclass
class RankingConfig:
    """What a step learns from: lists of a row's positives and negatives."""

    loss: Literal["lambda", "listnet"] = "lambda"  # LambdaLoss (NDCG-Loss2++), ListNet
    negatives: Count = 4  # for each positive: the best of the pool
    max_pairs: Annotated[int, Ge(2)] = 16  # of a list; positives first


@dataclass
class TrainVerifierConfig(TrainConfig):
    kind: str = "cross_encoder"
    sets: dict[str, VerifierRowsConfig] = field(default_factory=dict)  # by name
    network: CrossEncoderConfig = field(default_factory=CrossEncoderConfig)
    ranking: RankingConfig = field(default_factory=RankingConfig)
    max_selected: Count = 5  # at most so many passages are promoted


class VerifierTraining(RowsTraining):
    schema, prefix, title, summary = TrainVerifierConfig, "verifier", "Verifier", SUMMARY
    config: TrainVerifierConfig

    def keep(self, trainer: CrossEncoderTrainer, folder: Path) -> None:
        model: Any = self.context.accelerator.unwrap_model(trainer.model)
        config = self.config.network
        whole = merged(model, config) if config.rank else model
        whole.save_pretrained(str(folder), create_model_card=False)
        write_tuned(folder, TunedRecord("verifier", KIND, base_record(config.base), asdict(config)))

    @cached_property
    def model(self) -> CrossEncoder:
        gc.collect()
        torch.cuda.empty_cache()  # of the trainer
        return load_cross_encoder(self.best, str(self.context.accelerator.device))

    def trainer(self, folder: Path) -> CrossEncoderTrainer:
        """Return sentence-transformers' Trainer with its data. Raises DataError where no list teaches anything."""
        from datasets import Dataset, interleave_datasets

        config = self.config
        torch.manual_seed(config.seed)
        model, sets, weights = open_base(config.network), [], []
        for name, rows in self.examples("train").items():
            if lists := [one for row in rows if (one := list_of(row, config.ranking))]:
                sets.append(Dataset.from_list(lists))
                weights.append(config.sets[name].share * math.sqrt(len(lists)))
        if not sets:
            raise DataError("training data", f"no list of {', '.join(self.sets)} has both a positive and a negative")
        chances = [weight / sum(weights) for weight in weights]
        data = interleave_datasets(sets, chances, seed=config.seed, stopping_strategy="all_exhausted")
        samples = [s for _, row in self.named_rows("validation") if (s := ranking_sample(row))]
        metric, own = f"eval_ndcg@{TOP}" if samples else None, {"ddp_find_unused_parameters": False}
        return CrossEncoderTrainer(
            model,
            arguments(CrossEncoderTrainingArguments, folder, config, metric, own),
            train_dataset=data,
            loss=LOSSES[config.ranking.loss](model, mini_batch_size=-1),
            evaluator=CrossEncoderRerankingEvaluator(samples, at_k=TOP, write_csv=False) if samples else None,
        )

    def _scored(self, part: str) -> list[dict[str, Any]]:
        """Score the rows of a part, each process its share; every process gets all."""
        scored = []
        for name, row in self.named_rows(part)[self.context.share]:
            pairs, labels = judged(row)
            scores = np.array(scores_of(self.model, pairs))
            scored.append({"set": name, "id": row.question_id, "scores": scores, "labels": labels})
        return self.context.gather(scored)

    def report(self) -> tuple[Report, dict[str, Any]]:
        """Learn the selection on validation, and measure the report with it: the mean of a question's decisions."""
        validation = self._scored("validation")
        selection = learn_selection([(v["scores"], v["labels"]) for v in validation], self.config.max_selected)
        rows = []
        for one in self._scored("report"):
            metrics = promotion_metrics(one["labels"], selection.places(one["scores"]))
            rows.append({"set": one["set"], "id": one["id"], "metrics": metrics})
        return by_question(rows), {"selection": asdict(selection), "threshold": selection.threshold}


def open_base(config: CrossEncoderConfig) -> CrossEncoder:
    """Return the network before its first step; a head of an encoder without one follows from torch's seed.

    Raises ConfigError where the base is not there, or cannot be loaded.
    """
    folder, _ = model_folder(config.base)
    try:
        with quiet_loading():
            model = CrossEncoder(
                folder, num_labels=1, max_length=config.max_tokens, device="cpu", model_kwargs={"use_safetensors": True}
            )
    except (OSError, ValueError) as error:
        raise ConfigError(f"network.base={config.base!r} cannot be loaded: {error}") from error
    if config.rank:
        from peft import LoraConfig

        # `modules_to_save`: the head, which is new, trains whole, whichever of these names it has.
        model.add_adapter(
            LoraConfig(
                r=config.rank,
                lora_alpha=2 * config.rank,
                target_modules="all-linear",
                modules_to_save=["classifier", "score"],
                task_type="SEQ_CLS",
            )
        )
    return model


def merged(model: CrossEncoder, config: CrossEncoderConfig) -> CrossEncoder:
    """Return the base with a trained adapter added to its weights."""
    from peft import PeftModel

    whole = open_base(CrossEncoderConfig(config.base, config.max_tokens)).to(model.device)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, create_model_card=False)
        bare: Any = whole[0].model
        network: Any = PeftModel.from_pretrained(bare, folder)
    whole[0].model = network.merge_and_unload()
    return whole


def judged(row: VerifierRow) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Return the pairs of texts that the cross-encoder reads, and which the teacher selected, (len(pairs),) bool."""
    labels = np.array([passage.id in row.selected for passage in row.passages], dtype=bool)
    return pairs_of(row.question, row.chain, [passage.passage for passage in row.passages]), labels


def ranking_sample(row: VerifierRow) -> dict[str, Any] | None:
    """Return a row for sentence-transformers' evaluator of rerankers; None where there is nothing to find."""
    pairs, labels = judged(row)
    texts = np.array([text for _, text in pairs], dtype=object)
    row_texts = {"positive": texts[labels].tolist(), "negative": texts[~labels].tolist()}
    return {"query": pairs[0][0], **row_texts} if labels.any() else None


def list_of(row: VerifierRow, config: RankingConfig) -> dict[str, Any] | None:
    """Return query, documents (positives first) and their labels; None where a list lacks positives or negatives."""
    pairs, labels = judged(row)
    positives = np.flatnonzero(labels)[: config.max_pairs - 1]
    count = min(config.negatives * len(positives), config.max_pairs - len(positives))
    negatives = np.flatnonzero(~labels)[:count]
    if not (len(positives) and len(negatives)):
        return None
    docs = [pairs[i][1] for i in (*positives, *negatives)]
    return {"query": pairs[0][0], "docs": docs, "labels": [1.0] * len(positives) + [0.0] * len(negatives)}


def learn_selection(scored: Sequence[tuple[np.ndarray, np.ndarray]], max_selected: int) -> Selection:
    """Choose the threshold with the best F1 over all passages of all decisions, by their scores and labels.

    Where no label is positive, there is no threshold, and the `max_selected` best are selected.
    """
    kept = [(scores, labels) for scores, labels in scored if labels.any()]
    if not kept:
        return Selection(-1e9, max_selected)
    scores, labels = (np.concatenate(rows) for rows in zip(*kept, strict=True))
    *_, least = BinaryClassificationEvaluator.find_best_f1_and_threshold(scores, labels, high_score_more_similar=True)
    return Selection(float(least), max_selected)
