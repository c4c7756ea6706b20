"""Settings of `training/train_gnn.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnrag.config import DataConfig, IndexConfig
from gnnrag.errors import ConfigError
from gnnrag.fit.config import FitConfig, FoldConfig, TrainingRunConfig
from gnnrag.gnn.completion import CompletionConfig
from gnnrag.gnn.config import GNNConfig, LossConfig
from gnnrag.gnn.neighbourhood import NeighbourhoodConfig
from gnnrag.gnn.prune import PruneConfig

STAGES, USES = ("retrieval", "completion"), ("folds", "train", "report")


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
class TrainGNNConfig:
    """Everything that training of the graph network reads."""

    sets: dict[str, SetConfig] = field(default_factory=dict)  # by name
    stage: str = "retrieval"  # retrieval: questions with gold passages; completion: triples of the graphs
    start: str | None = None  # checkpoint to start from, such as that of stage 1
    gnn: GNNConfig = field(default_factory=GNNConfig)
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
    for name, one in config.sets.items():
        if one.use not in USES:
            raise ConfigError(f"sets.{name}.use={one.use!r}: allowed are {', '.join(USES)}")
        if config.cross and one.use == "report":
            raise ConfigError(
                f"sets.{name}.use=report with cross=true: every fold would report on all of it; cross=false"
            )
        if one.synthetic < 0 or one.share <= 0:
            raise ConfigError(f"sets.{name}: synthetic={one.synthetic} must be 0 or more, share={one.share} above 0")
    if config.cross and config.folds.report is None:
        raise ConfigError("cross=true reports on every fold in turn; folds.report=null reports on none")
