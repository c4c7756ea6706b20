"""Settings: a tree of dataclasses, one short YAML per experiment, dotted overrides, no key that nobody reads.

A *choice* section names a registered part and carries its settings. `retriever: chg` and `retriever=chg` are short for
`retriever.name=chg`; `retriever.damping=0.6` sets a field of that part's dataclass.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnrag import registry
from gnnrag.common.yaml_config import CHOICES as CHOICES
from gnnrag.common.yaml_config import FROZEN, MARK, expression_of, frozen, hidden, shorthand, spelt, thawed, with_values
from gnnrag.common.yaml_config import read_yaml as read_yaml
from gnnrag.errors import ConfigError, nearest
from gnnrag.index_config import CommunityConfig as CommunityConfig
from gnnrag.index_config import EmbedderConfig as EmbedderConfig
from gnnrag.index_config import ExtractConfig as ExtractConfig
from gnnrag.index_config import GraphConfig as GraphConfig
from gnnrag.index_config import IndexConfig as IndexConfig
from gnnrag.index_config import KnowledgeConfig as KnowledgeConfig
from gnnrag.index_config import RoleConfig as RoleConfig
from gnnrag.index_config import TextConfig as TextConfig
from gnnrag.index_config import TreeConfig as TreeConfig
from gnnrag.index_config import check_choices, one_of
from gnnrag.parts import Part, is_part, make, settings_of

T = TypeVar("T")


@dataclass
class Choice:
    """A registered part by name, with its settings as an instance of the part's own dataclass."""

    name: str
    settings: Any = None


RolesConfig = dataclasses.make_dataclass(
    "RolesConfig",
    [("default", str, "offline")] + [(name, RoleConfig, field(default_factory=RoleConfig)) for name in registry.ROLES],  # type: ignore[arg-type]
)


def implementation(roles: Any, name: str) -> str:
    """Return which form does a role of a `RolesConfig`; `auto`: `tuned` where that is proven, else `offline`."""
    chosen: str = getattr(roles, name).impl or roles.default
    return ("tuned" if None in registry.PROVEN.get(name, ()) else "offline") if chosen == "auto" else chosen


@dataclass
class DataConfig:
    """Where passages and questions come from."""

    path: str = "data/sample"  # folder or file, see data/README.md
    split: str = "dev"
    questions: str | None = None  # a questions file from elsewhere, on the same corpus
    limit: int | None = None  # only the first questions, no sample of them; of a knowledge base: of each file
    sample: int | None = None  # so many questions, drawn in proportion to the types
    sample_seed: int = 0  # of that draw
    titles: bool = True  # false: passages without their titles, as in text that has none
    chunk_words: int = 100  # own documents: words of a passage, about
    chunk_overlap: int = 0  # own documents: words that neighbours share
    popqa_aliases: str = one_of("decoded", "raw")  # raw: as published PopQA numbers were computed
    missing_gold: str = one_of("error", "drop")  # a release's gold passage that its corpus lacks

    @property
    def draw(self) -> tuple[int, int] | None:
        """How many questions are drawn, and by which seed; None: all are taken."""
        return None if self.sample is None else (self.sample, self.sample_seed)


@dataclass
class TrackedRun:
    """Who else is told of a run. The run directory records everything in any case."""

    tracking: str = one_of("off", "offline", "online")  # Weights & Biases
    project: str = "gnnrag"
    entity: str | None = None  # team or account; null: that of whoever is logged in
    group: str | None = None  # shows runs together; null: shards and folds of a run are a group
    tags: list[str] = field(default_factory=list)


@dataclass
class RunConfig(TrackedRun):
    """The run directory."""

    root: str = "runs"
    name: str | None = None  # default: data, method, retriever and a hash of the settings
    fresh: bool = False  # throw an earlier run of that name away
    retry_failed: bool = True  # a resumed run tries questions again that had ended with an error
    traces: bool = True
    warn_bad_replies: float | None = 0.1  # a role with a larger share of bad replies is a warning (metrics.replies)
    max_bad_replies: float | None = 0.5  # and with a larger one than this an error, exit code 1; null: never


def check_run(config: RunConfig) -> None:
    """Raise ConfigError where a setting of `run` is none of those allowed, or a limit of bad replies is no share."""
    check_choices(config, "run")
    for name, value in (("warn_bad_replies", config.warn_bad_replies), ("max_bad_replies", config.max_bad_replies)):
        if value is not None and not 0 <= value <= 1:
            raise ConfigError(f"run.{name}={value:g}: give a share from 0 to 1, or null for no limit")


@dataclass
class LongAnswersConfig:
    """How questions are scored whose reference answers are a sentence or more, or that have no gold passages."""

    context_tokens: int = 1_000  # of what was retrieved, from the best passage on: the same budget for all
    tokenizer: str = "estimate"  # 4 characters a token; or a folder with tokenizer.json, or a name for transformers
    answer_words: int | None = None  # answers are cut to so many words, to compare at one length; null: whole
    least_support: float = 0.5  # share of a statement's weight that a text must have to state it; fitted on 2wiki-train


@dataclass
class AnswerConfig:
    """How long answers are."""

    style: str | None = None  # short, sentence or long; null: by the question's kind
    words: int | None = None  # of a long answer at most; null: 120


@dataclass
class MetricsConfig:
    """How predictions are scored."""

    ks: list[int] = field(default_factory=lambda: [1, 2, 5, 10, 20, 30, 50, 100, 150, 200])
    skip_no_gold: bool = True  # means of recall are over questions that have gold passages; false: others count 0
    f1_variant: str = "hipporag"  # hipporag, hotpot or squad
    long: LongAnswersConfig = field(default_factory=LongAnswersConfig)


@dataclass
class BudgetConfig:
    """Limits for one question; null is unlimited."""

    max_rounds: int = 50  # above every method's own limit
    max_calls: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None


@dataclass
class EvaluateConfig:
    """Everything `gnnrag evaluate` reads."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    retriever: Any = "chg"  # where the method names no other as its default
    method: Any = "bdtr"
    roles: RolesConfig = field(default_factory=RolesConfig)  # type: ignore[valid-type]
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    answer: AnswerConfig = field(default_factory=AnswerConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    run: RunConfig = field(default_factory=RunConfig)
    shard: str | None = None  # 3/16: the third of 16 parts of the questions; merge: all parts together
    seed: int = 0  # of the bootstrap behind the intervals; predictions draw no random numbers
    concurrency: int = 16


EXAMPLES = {  # a key of a script's settings to a file of such settings; a run's own have none of these
    "fit": "those of configs/train", "judged": "configs/judge/scores.yaml",
}  # fmt: skip


def load_config(
    schema: type[T], source: str | Path | Mapping[str, Any] | None = None, overrides: Sequence[str] = ()
) -> T:
    """Read defaults, then a YAML file (or a mapping), then dotted `key=value` overrides; evaluate expressions.

    Raises ConfigError: missing file, broken YAML, unknown key (the nearest valid one is named), or a wrong type.
    """
    if isinstance(source, Mapping):
        whole = OmegaConf.to_container(source) if isinstance(source, DictConfig) else dict(source)
        raw = OmegaConf.create(frozen(whole, MARK))
    else:
        keys = {f.name for f in dataclasses.fields(schema)}  # type: ignore[arg-type]
        examples = next((example for key, example in EXAMPLES.items() if key in keys), "configs/evaluate/sample.yaml")
        raw = read_yaml(source, examples) if source else OmegaConf.create({})
    for item in overrides:
        if "=" not in item or item.startswith("="):
            raise ConfigError(f"override {item!r} is not of the form key=value")
        try:
            override = shorthand(OmegaConf.from_dotlist([item]))
            raw = OmegaConf.merge(shorthand(raw, override), override)  # type: ignore[assignment]
        except (OmegaConfBaseException, TypeError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"override {item!r} cannot be read, or does not fit the config: {error}") from error
    raw = shorthand(raw)
    root = _defaults(schema)  # type: ignore[arg-type]
    if "gnn" in raw and "gnn" not in root and "retriever" in root:  # gnn.checkpoint: a setting of retriever=gfm
        given = raw.pop("gnn")
        raw = OmegaConf.merge(raw, {"retriever": given})  # type: ignore[assignment]
    everything = _evaluated(raw, schema)
    try:
        return _filled(root, everything)  # type: ignore[no-any-return]
    except ConfigError as error:  # it quotes what an expression gave
        raise ConfigError(hidden(str(error), everything)) from None


def _filled(root: DictConfig, everything: Mapping[str, Any]) -> Any:
    chosen: dict[str, Choice] = {}
    names = {name: root[name] for name in CHOICES if name in root}
    for name in names:
        chosen[name] = _choose(name, everything, names[name])
        if name == "method" and "retriever" in names:
            wanted = registry.resolve(name, chosen[name].name, CHOICES[name])
            names["retriever"] = wanted.default_retriever or names["retriever"]
    config = _merge(root, {**everything, **{name: choice.name for name, choice in chosen.items()}}, "")
    for name, choice in chosen.items():
        setattr(config, name, choice)
    if "retriever" in chosen and {"auto", "tuned"} & {config.roles.default, config.roles.thoughts.impl}:
        _settle_thoughts(config)
    return config


def _settle_thoughts(config: Any) -> None:
    """Write out what thoughts are, and with which options, where that follows from the retriever (`registry.PROVEN`).

    `auto` takes the part that is proven on the run's one retriever, with the embedder that it was trained with and the
    tuned verifier that it was measured with.
    """
    role: RoleConfig = config.roles.thoughts
    options = registry.PROVEN.get("thoughts", {}).get(config.retriever.name)
    method = registry.resolve("method", config.method.name, registry.METHODS)
    if role.path or (method.role_names is not None and "thoughts" not in method.role_names):
        return
    if (role.impl or config.roles.default) == "auto":
        fits = options is not None and config.index.embedder.model == "embedded"
        fits = fits and not method.routes_for(config.method.settings)
        role.impl = "tuned" if fits and implementation(config.roles, "verifier") == "tuned" else "offline"
    if options and (role.impl or config.roles.default) == "tuned":
        role.options = {**options, **role.options}


def build_settings(cls: type[Part], values: Mapping[str, Any], where: str) -> Any:
    """Return `cls.config_class` with `values` over those of a `preset`; unknown keys: ConfigError naming `where`."""
    if is_part(cls):
        return make(cls, values, where)
    schema, presets = cls.config_class, cls.presets
    if presets and "preset" in values:
        if (low := presets.get(str(values["preset"]))) is None:
            raise ConfigError(f"{where}.preset={values['preset']!r}: {nearest(str(values['preset']), presets)}")
        given = {key: value for key, value in values.items() if key != "preset"}
        both = {k: {**low[k], **v} for k, v in given.items() if isinstance(v, Mapping) and isinstance(low.get(k), dict)}
        values = {**low, **given, **both}
    if schema is None and values:
        raise ConfigError(f"{where} has no settings, but got {', '.join(values)}")
    return _merge(_defaults(schema), dict(values), where) if schema else None


def to_plain(config: Any, values: bool = False) -> Any:
    """Return resolved settings as JSON data, choices with `name` in front, expressions as written unless `values`."""
    if (expression := expression_of(config)) is not None:
        return config if values else expression
    if isinstance(config, Choice):
        return {"name": config.name, **(to_plain(config.settings, values) or {})}
    if is_part(type(config)):
        return {name: to_plain(value, values) for name, value in settings_of(config).items()}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        kept = [f.name for f in dataclasses.fields(config) if not f.metadata.get("passing")]
        return {name: to_plain(getattr(config, name), values) for name in kept}
    if isinstance(config, Mapping):
        return {str(k): to_plain(v, values) for k, v in config.items()}
    if isinstance(config, list | tuple):
        return [to_plain(v, values) for v in config]
    return config


def _choose(section: str, everything: Mapping[str, Any], default: str) -> Choice:
    values = dict(everything.get(section) or {})
    name = values.pop("name", None) or default
    if expression := expression_of(name):  # names stand in names of folders
        raise ConfigError(f"{section}.name={expression}: write the name out; only its settings may be expressions")
    cls = registry.resolve(section, name, CHOICES[section])
    return Choice(name, build_settings(cls, values, section))


def _evaluated(raw: DictConfig, schema: type) -> dict[str, Any]:
    """Return the caller's settings as plain data; what an expression gave carries it (`gnnrag.common.yaml_config`)."""
    plain: Any = OmegaConf.to_container(raw)
    try:
        if MARK in repr(plain):
            defaults = OmegaConf.create({k: v for k, v in to_plain(schema()).items() if k not in CHOICES})
            plain = with_values(plain, OmegaConf.merge(defaults, raw))
    except OmegaConfBaseException as error:
        key, message = getattr(error, "full_key", "") or "?", str(error).splitlines()[0]
        raise ConfigError(f"{key}: {message}") from error
    return _with_pulled(plain) if "hub:" in repr(plain) else plain  # type: ignore[no-any-return]


def _with_pulled(plain: Any) -> Any:
    from gnnrag.hub import with_pulled  # few settings name a hub

    return with_pulled(plain)


def read_plain(schema: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Return a dataclass filled with a record's plain data, none evaluated; ConfigError: unknown key or wrong type."""
    return _merge(_defaults(schema), dict(values), where)  # type: ignore[arg-type, no-any-return]


@functools.cache
def _defaults(schema: type) -> DictConfig:
    """Return a schema's defaults, which nobody changes: to build those of an evaluation takes OmegaConf 70 ms."""
    defaults: DictConfig = OmegaConf.structured(schema)
    OmegaConf.set_readonly(defaults, True)
    return defaults


def _merge(base: Any, values: dict[str, Any], where: str) -> Any:
    """Return the dataclass of `base` with `values` put in, none evaluated; an unknown key names the nearest one."""
    _check_keys(base, values, where)
    values = spelt(base, values)
    try:
        merged = OmegaConf.to_object(OmegaConf.merge(base, frozen(values)))
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", "") or "?"
        message = str(error).splitlines()[0].replace(FROZEN, MARK)
        raise ConfigError(f"{where + '.' if where else ''}{key}: {message}") from error
    merged = thawed(merged, values)
    check_choices(merged, where)
    return merged


def _check_keys(base: Any, values: Mapping[str, Any], where: str) -> None:
    for key, value in values.items():
        dotted = f"{where}.{key}" if where else str(key)
        if key not in base:
            raise ConfigError(f"unknown setting {dotted!r}. {nearest(str(key), [str(k) for k in base])}")
        node = base._get_node(key)
        if isinstance(node, DictConfig) and dataclasses.is_dataclass(OmegaConf.get_type(node)):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{dotted}={value!r}: is a section, with the keys {', '.join(map(str, node))}")
            _check_keys(node, value, dotted)
