"""Settings of the training of a language model for a role."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gnnrag.config import DataConfig, IndexConfig
from gnnrag.errors import ConfigError
from gnnrag.fit.config import FitConfig, FoldConfig, TrainingRunConfig

CHOICES = {
    "stage": ("sft", "dpo"),
    "data.divide": ("folds", "rows"),
    "model.train": ("lora", "full"),
    "model.dtype": ("auto", "float32", "bfloat16", "float16"),
    "model.chat": ("auto", "plain"),
    "model.too_long": ("drop", "refuse"),
    "preference.reference": ("start", "base"),
    "preference.chosen": ("teacher", "best"),
    "run.export": ("adapter", "merged", "both"),
}
LEAST = {"lora.rank": 1, "preference.pairs": 1}
LEAST |= {"judging.rows": 0, "judging.batch": 1, "judging.batch_tokens": 1, "judging.tokens": 1}


@dataclass
class RowsConfig:
    """What is trained on."""

    rows: list[str] = field(default_factory=list)  # files of inference/collect_traces.py
    prompt: str | None = None  # name or .yaml of another prompt than the role's: a trained model needs no long one
    divide: str = "folds"  # questions: by folds, or as the rows' `part` says


@dataclass
class ModelConfig:
    """The model that is trained, and how it is shown a conversation; the latter is kept for inference."""

    base: str = ""  # folder or hub name (name@revision)
    train: str = "lora"  # lora: an adapter on frozen weights; full: all weights
    dtype: str = "auto"  # of frozen weights; auto: bfloat16 on a GPU, else float32. What trains is float32
    chat: str = "auto"  # auto: the tokenizer's chat template; plain: the bare texts
    template_options: dict[str, bool | str] = field(default_factory=dict)  # variables of the template: enable_thinking
    context: int | None = None  # most tokens of prompt and reply together; null: the model's own limit
    too_long: str = "drop"  # rows beyond the context: drop (and count), or refuse to train
    checkpointing: bool = False  # of gradients: activations are computed again, which takes time and saves memory


@dataclass
class LoraSettings:
    """Low-rank adapters (LoRA, arXiv 2106.09685): W + (alpha / rank) B A with W frozen."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0  # above 0, the result depends on the number of processes
    targets: list[str] = field(default_factory=list)  # names of layers; empty: all linear ones but the output
    rslora: bool = False  # scale by alpha / sqrt(rank) instead (arXiv 2312.03732)


@dataclass
class PreferenceConfig:
    """Direct preference optimisation (DPO, arXiv 2305.18290), stage `dpo`."""

    beta: float = 0.1  # how far the model may move from the reference: larger is nearer
    smoothing: float = 0.0  # assumed share of pairs that are the wrong way round, below 0.5
    sft: float = 0.0  # weight of the chosen reply's mean -log p on top (arXiv 2404.19733): keeps replies in their form
    reference: str = "start"  # start: the model that training starts from; base: without its adapter
    chosen: str = "teacher"  # preferred: teacher's thought; best: the query of the largest gain, whoever made it
    margin: float = 0.1  # least difference of gains between the two of a pair
    pairs: int = 4  # of one row and one kind of thought, those of the largest difference first


@dataclass
class CorpusConfig:
    """Where the thoughts of a set are retrieved with, to measure what they bring."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    retriever: str = "dense"  # with its default settings
    licence: str = ""  # of the rows made from it, for the model card


@dataclass
class JudgingConfig:
    """How validation and report are measured: replies are generated, parsed, and put to use."""

    rows: int | None = None  # most validation rows, by a hash of their ids; 0: no validation; null: all
    batch: int = 16  # replies generated, or scored, together; of DPO, pairs of them
    batch_tokens: int = 32768  # limit of rows times (longest prompt + reply) of such a batch: its memory
    tokens: int = 160  # of a reply
    metric: str | None = None  # that decides which weights are kept; null: f1; gain, or likelihood without corpora


@dataclass
class ExportRunConfig(TrainingRunConfig):
    """The run directory, and what is left in it. `export` may be changed when the training has ended."""

    export: str = "adapter"  # folder best: the adapter, or the merged model; both: the latter in folder merged


@dataclass
class TrainLanguageConfig:
    """Everything that training of a language model for a role reads."""

    kind: str = "causal"  # causal or seq2seq, as the model is
    stage: str = "sft"  # sft: supervised, on the teacher's replies; dpo: preferences, thoughts only
    start: str | None = None  # run or checkpoint to go on from: that of stage sft
    data: RowsConfig = field(default_factory=RowsConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    lora: LoraSettings = field(default_factory=LoraSettings)
    preference: PreferenceConfig = field(default_factory=PreferenceConfig)
    corpora: dict[str, CorpusConfig] = field(default_factory=dict)  # by set; thoughts: measures what they retrieve
    judging: JudgingConfig = field(default_factory=JudgingConfig)
    folds: FoldConfig = field(default_factory=FoldConfig)
    cross: bool = False  # train once for each fold and report on all questions together
    fit: FitConfig = field(default_factory=FitConfig)
    run: ExportRunConfig = field(default_factory=ExportRunConfig)
    seed: int = 0
    cache: str = ".cache/language"  # log-probabilities of the reference


def check_language(config: TrainLanguageConfig, role: str) -> None:
    """Raise ConfigError where there is nothing to train on, or a setting is out of range."""
    _check_ranges(config)
    if not config.data.rows:
        raise ConfigError(f"data.rows: name at least one file {role}.jsonl of inference/collect_traces.py")
    if not (config.model.base or config.start):
        raise ConfigError("model.base: name the folder of a model, or its name on the hub")
    if config.stage == "dpo" and role != "thoughts":
        raise ConfigError(f"stage=dpo: only thoughts have candidates to prefer one from, not the {role}")
    if config.model.train == "full" and config.preference.reference == "base" and config.stage == "dpo":
        raise ConfigError("preference.reference=base needs an adapter to leave out; with model.train=full, take start")
    if config.cross and config.data.divide == "rows":
        raise ConfigError("data.divide=rows has one division; cross=true needs data.divide=folds")


def _check_ranges(config: TrainLanguageConfig) -> None:
    for name, allowed in CHOICES.items():
        if (value := _get(config, name)) not in allowed:
            raise ConfigError(f"{name}={value!r}: allowed are {', '.join(allowed)}")
    for name, least in LEAST.items():
        if (value := _get(config, name)) is not None and value < least:
            raise ConfigError(f"{name}={value}: must be at least {least}")
    p = config.preference
    if p.beta <= 0 or not 0 <= p.smoothing < 0.5 or p.margin <= 0 or p.sft < 0:
        raise ConfigError(
            f"preference: beta={p.beta} and margin={p.margin} must be above 0, smoothing={p.smoothing} in [0, 0.5), "
            f"sft={p.sft} at least 0"
        )


def _get(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config
