"""Settings: a tree of dataclasses, one short YAML per experiment, dotted overrides, and no key that nobody reads.

A *choice* section names a registered part and carries that part's own settings. `retriever: chg` and
`retriever=chg` are short for `retriever.name=chg`; `retriever.damping=0.6` then sets a field of that part's dataclass.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnrag import registry
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

T = TypeVar("T")
_HOME = Path(__file__).resolve().parents[1]  # the repository, where this is a checkout of it
CHOICES = {"method": registry.METHODS, "retriever": registry.RETRIEVERS, "llm": registry.BACKENDS}


@dataclass
class Choice:
    """A registered part by name, with its settings as an instance of the part's own dataclass."""

    name: str
    settings: Any = None


RolesConfig = dataclasses.make_dataclass(
    "RolesConfig",
    [("default", str, "offline")] + [(name, RoleConfig, field(default_factory=RoleConfig)) for name in registry.ROLES],  # type: ignore[arg-type]
)


@dataclass
class DataConfig:
    """Where passages and questions come from."""

    path: str = "data/sample"  # folder or file, see data/README.md
    split: str = "dev"
    questions: str | None = None  # a questions file from elsewhere, on the same corpus
    limit: int | None = None  # only the first questions; of a knowledge base: of each file
    chunk_words: int = 100  # own documents: words of a passage, about
    chunk_overlap: int = 0  # own documents: words that neighbours share
    popqa_aliases: str = one_of("decoded", "raw")  # raw: as published PopQA numbers were computed
    missing_gold: str = one_of("error", "drop")  # a release's gold passage that its corpus lacks


@dataclass
class TrackedRun:
    """Who else is told of a run. The run directory records everything in any case."""

    tracking: str = one_of("off", "offline", "online")  # Weights & Biases
    project: str = "gnnrag"
    entity: str | None = None  # team or account; null: that of whoever is logged in
    group: str | None = None  # shows runs together; null: shards and folds of a run are a group
    tags: list[str] = field(default_factory=list)
    upload: str = one_of("results", "all", "none")  # all: traces, indexes and large checkpoints, too; none: digests
    tracking_wait: float = 120.0  # seconds at most that a run waits for it at its end

    def __post_init__(self) -> None:
        """Take `off` back from YAML, which reads it as false."""
        self.tracking = "off" if self.tracking == "False" else self.tracking


@dataclass
class RunConfig(TrackedRun):
    """The run directory."""

    root: str = "runs"
    name: str | None = None  # default: data, method, retriever and a hash of the settings
    fresh: bool = False  # throw an earlier run of that name away
    retry_failed: bool = True  # a resumed run tries questions again that had ended with an error
    traces: bool = True


def check_tracking(config: TrackedRun) -> None:
    """Raise ConfigError where a setting of `run` that W&B is told by is none of those allowed."""
    check_choices(config, "run")
    if config.tracking_wait <= 0:
        raise ConfigError(f"run.tracking_wait={config.tracking_wait:g}: must be above 0, in seconds")


@dataclass
class MetricsConfig:
    """How predictions are scored."""

    ks: list[int] = field(default_factory=lambda: [1, 2, 5, 10, 20, 30, 50, 100, 150, 200])
    skip_no_gold: bool = False  # leave questions without gold passages out of the retrieval means
    f1_variant: str = "hipporag"  # hipporag, hotpot or squad


@dataclass
class BudgetConfig:
    """Limits for one question; null is unlimited."""

    max_rounds: int = 50  # above every method's own limit
    max_calls: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None


@dataclass
class EvaluateConfig:
    """Everything `inference/evaluate.py` reads."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    retriever: Any = "chg"  # where the method names no other as its default
    method: Any = "bdtr"
    roles: RolesConfig = field(default_factory=RolesConfig)  # type: ignore[valid-type]
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    run: RunConfig = field(default_factory=RunConfig)
    shard: str | None = None  # 3/16: the third of 16 parts of the questions; merge: all parts together
    seed: int = 0  # of the bootstrap behind the intervals; predictions draw no random numbers
    concurrency: int = 16


EXAMPLES = {  # a key of a script's settings to a file of such settings; a run's own have none of these
    "fit": "those of configs/train", "make": "configs/questions/metaqa.yaml", "write": "configs/textualise/metaqa.yaml",
    "judged": "configs/judge/scores.yaml",
}  # fmt: skip


def load_config(
    schema: type[T], source: str | Path | Mapping[str, Any] | None = None, overrides: Sequence[str] = ()
) -> T:
    """Read defaults, then a YAML file, then dotted overrides.

    Args:
        schema: the root dataclass, for example `EvaluateConfig`.
        source: a YAML file that lists deviations from the defaults, or what such a file holds.
        overrides: `key=value` strings.

    Raises:
        ConfigError: missing file, broken YAML, unknown key (the nearest valid one is named), or a wrong type.
    """
    if isinstance(source, Mapping):
        raw = OmegaConf.create(dict(source))
    else:
        keys = {f.name for f in dataclasses.fields(schema)}  # type: ignore[arg-type]
        examples = next((example for key, example in EXAMPLES.items() if key in keys), "configs/evaluate/sample.yaml")
        raw = read_yaml(source, examples) if source else OmegaConf.create({})
    for item in overrides:
        if "=" not in item or item.startswith("="):
            raise ConfigError(f"override {item!r} is not of the form key=value")
        try:
            override = _shorthand(OmegaConf.from_dotlist([item]))
        except (OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"override {item!r} cannot be read: {error}") from error
        raw = OmegaConf.merge(_shorthand(raw, override), override)  # type: ignore[assignment]
    raw = _shorthand(raw)
    root = OmegaConf.structured(schema)
    if "gnn" in raw and "gnn" not in root and "retriever" in root:  # gnn.checkpoint: a setting of retriever=gfm
        given = raw.pop("gnn")
        raw = OmegaConf.merge(raw, {"retriever": given})  # type: ignore[assignment]
    chosen = {}
    for name in (name for name in CHOICES if name in root):
        chosen[name] = _choose(name, raw, root)
        if name == "method" and "retriever" in root:
            wanted = registry.resolve(name, chosen[name].name, CHOICES[name])
            root["retriever"] = getattr(wanted, "default_retriever", root["retriever"])
    everything: Any = OmegaConf.to_container(raw)
    plain = {key: value for key, value in everything.items() if key not in chosen}
    for name, choice in chosen.items():
        root[name] = choice.name
    config = _merge(root, plain, "")
    for name, choice in chosen.items():
        setattr(config, name, choice)
    return config


def build_settings(cls: type, values: Mapping[str, Any], where: str) -> Any:
    """Return an instance of `cls.config_class` filled with `values`; unknown keys raise ConfigError naming `where`."""
    schema = getattr(cls, "config_class", None)
    if schema is None:
        if values:
            raise ConfigError(f"{where} has no settings, but got {', '.join(values)}")
        return None
    return _merge(OmegaConf.structured(schema), dict(values), where)


def to_plain(config: Any) -> Any:
    """Return the resolved settings as JSON data; a choice becomes its settings with `name` in front."""
    if isinstance(config, Choice):
        return {"name": config.name, **(to_plain(config.settings) or {})}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_plain(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return {str(k): to_plain(v) for k, v in config.items()}
    if isinstance(config, list | tuple):
        return [to_plain(v) for v in config]
    return config


def read_yaml(source: str | Path, examples: str) -> DictConfig:
    """Return a YAML file that holds a mapping. Raises ConfigError, naming `examples`, where there is none."""
    path = Path(source)
    if not path.is_file():
        if not path.is_absolute() and (_HOME / path).is_file():
            problem = f"config file {str(path)!r} does not exist in {Path.cwd()}"
            raise ConfigError(f"{problem}; run the command from the repository's root, which has it: cd {_HOME}")
        beside = sorted(p.name for p in path.parent.glob("*.yaml"))
        if close := difflib.get_close_matches(path.name, beside, n=1, cutoff=0.8):
            examples = str(path.with_name(close[0]))
        raise ConfigError(f"config file {str(path)!r} does not exist; give a YAML file such as {examples}")
    try:
        raw = OmegaConf.load(path)
    except Exception as error:  # the YAML library raises several unrelated types
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(raw, DictConfig):
        raise ConfigError(f"{path}: must hold a mapping of settings")
    return raw


def _shorthand(raw: Any, override: Any = None) -> Any:
    """Expand `retriever: chg`, `roles: offline` and `roles.verifier: tuned` to their long forms.

    With `override` (in long form), also drop the settings of a part that the override replaces by another part.
    """
    plain: Any = OmegaConf.to_container(raw)
    for section in CHOICES.keys() & plain.keys():
        plain[section] = _long_form(section, plain[section], "name", override)
    index = plain.get("index")
    for section, where, key in ((plain, "roles", "roles"), (index, "index.writers", "writers")):
        if isinstance(section, dict) and key in section:
            roles = _long_form(where, section[key], "default")
            for role in roles.keys() - {"default"}:
                roles[role] = _long_form(f"{where}.{role}", roles[role], "impl", override)
            section[key] = roles
    return OmegaConf.create(plain)


def _long_form(where: str, value: Any, key: str, override: Any = None) -> dict[str, Any]:
    """Return a section as a mapping; a bare name is short for its field `key`.

    If the override gives another name, nothing is left of the section but that name.
    """
    if isinstance(value, str):
        value = {key: value}
    if not isinstance(value, dict) or not isinstance(value.get(key) or "", str):
        raise ConfigError(f"{where}={value!r}: give a name, or a section of settings with {key}: NAME")
    new = None if override is None else OmegaConf.select(override, f"{where}.{key}")
    return value if new is None or value.get(key) in (None, new) else {key: new}


def _choose(section: str, raw: DictConfig, root: DictConfig) -> Choice:
    values = dict(OmegaConf.to_container(raw.get(section) or OmegaConf.create({})))  # type: ignore[arg-type]
    name = values.pop("name", None) or root[section]
    cls = registry.resolve(section, name, CHOICES[section])
    return Choice(name, build_settings(cls, values, section))


def _merge(base: Any, values: dict[str, Any], where: str) -> Any:
    """Return the dataclass of `base` with `values` put in; an unknown key is refused with the nearest valid one."""
    _check_keys(base, values, where)
    try:
        merged = OmegaConf.to_object(OmegaConf.merge(base, values))
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", "") or "?"
        message = str(error).splitlines()[0]
        raise ConfigError(f"{where + '.' if where else ''}{key}: {message}") from error
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
