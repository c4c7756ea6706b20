"""Settings of `training/train_gnn.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnrag.config import DataConfig, IndexConfig, load_config, read_yaml, to_plain
from gnnrag.errors import ConfigError, nearest
from gnnrag.fit.config import FitConfig, FoldConfig, TrainingRunConfig, check_sets
from gnnrag.gnn.completion import CompletionConfig
from gnnrag.gnn.config import GNNConfig, LossConfig, RankerConfig, official
from gnnrag.gnn.neighbourhood import NeighbourhoodConfig
from gnnrag.gnn.prune import PruneConfig

PRESETS = {"own": GNNConfig, "official": official}
STAGES = ("retrieval", "completion")


@dataclass
class SetConfig:
    """A corpus with questions that takes part in a training."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    use: str = "folds"  # folds: each question trains, validates or reports; train: none reports; report: all report
    share: float = 1.0  # factor of the probability that a batch takes its questions, beside the root of their number
    synthetic: int = 0  # further questions made from paths of the graph, which train
    train_limit: int | None = None  # at most so many questions train; of a knowledge base, of each number of hops
    licence: str = ""  # for the model card


@dataclass
class NetworkConfig(GNNConfig):
    """The network, where its settings start from, and what belongs to its training alone."""

    preset: str = "own"  # what all other settings of the network default to; official: GFM-RAG's architecture
    ranker: RankerConfig = field(default_factory=RankerConfig)  # mode entity: from entities to passages
    checkpointing: bool = False  # compute layers again in the backward pass: less memory, a third more time

    @property
    def architecture(self) -> GNNConfig:
        """What a checkpoint says of the network."""
        return GNNConfig(**{f.name: getattr(self, f.name) for f in fields(GNNConfig)})


@dataclass
class TrainGNNConfig:
    """Everything that training of the graph network reads."""

    sets: dict[str, SetConfig] = field(default_factory=dict)  # by name
    stage: str = "retrieval"  # retrieval: questions with gold passages; completion: triples of the graphs
    start: str | None = None  # checkpoint to start from: that of stage 1, or a folder that gfm-rag released
    gnn: NetworkConfig = field(default_factory=NetworkConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)  # mode node
    neighbourhood: NeighbourhoodConfig = field(default_factory=NeighbourhoodConfig)  # mode entity
    losses: LossConfig = field(default_factory=LossConfig)
    completion: CompletionConfig = field(default_factory=CompletionConfig)
    metric: str = "recall@5"  # of validation, that decides which weights are kept
    folds: FoldConfig = field(default_factory=FoldConfig)
    cross: bool = False  # train once for each fold and report on all questions together
    fit: FitConfig = field(default_factory=FitConfig)
    run: TrainingRunConfig = field(default_factory=TrainingRunConfig)
    seed: int = 0
    cache: str = ".cache/gnn"  # subgraphs of the questions


def load_training(source: str | Path | None, overrides: Sequence[str] = ()) -> TrainGNNConfig:
    """Return the settings of a file and overrides, those of the network on top of its preset.

    Raises:
        ConfigError: as `load_config`, or an unknown preset.
    """
    preset = load_config(TrainGNNConfig, source, overrides).gnn.preset
    if preset not in PRESETS:
        raise ConfigError(f"gnn.preset={preset!r} is unknown. {nearest(preset, PRESETS)}")
    base: Any = OmegaConf.create({"gnn": to_plain(PRESETS[preset]())})
    whole: Any = OmegaConf.merge(base, read_yaml(source, "configs/train/gnn_2wiki.yaml")) if source else base
    return load_config(TrainGNNConfig, whole, overrides)


def check_training(config: TrainGNNConfig) -> None:
    """Raise ConfigError where there is nothing to train on, or a setting is none of those allowed."""
    if not config.sets:
        raise ConfigError("sets: name at least one, as configs/train/gnn_2wiki.yaml does")
    if config.stage not in STAGES:
        raise ConfigError(f"stage={config.stage!r}: allowed are {', '.join(STAGES)}")
    if config.stage == "completion" and config.completion.query == "question" and not config.gnn.question_text:
        raise ConfigError(
            "completion.query=question with gnn.question_text=false: the network would not know the relation that is "
            "asked for; set completion.query=relation"
        )
    _check_ranker(config)
    for name, one in config.sets.items():
        if one.synthetic < 0:
            raise ConfigError(f"sets.{name}.synthetic={one.synthetic}: must be 0 or more")
    check_sets(config.sets, config.cross, config.folds)


def _check_ranker(config: TrainGNNConfig) -> None:
    """Raise ConfigError where a ranker would not learn, or where one cannot."""
    name, weight = config.gnn.ranker.name, config.losses.passages
    if weight and (config.gnn.mode != "entity" or name in ("topk", "idf_topk")):
        raise ConfigError(
            f"losses.passages={weight} with gnn.mode={config.gnn.mode} gnn.ranker.name={name}: only networks of mode "
            "entity with the rankers simple, idf and learned have scores of passages to learn from"
        )
    if config.stage == "retrieval" and config.gnn.mode == "entity" and name == "learned" and not weight:
        raise ConfigError("gnn.ranker.name=learned with losses.passages=0: it would not learn; give losses.passages=1")
