"""Settings: a tree of dataclasses, filled from one short YAML file and dotted overrides. Unknown keys are errors.

A *choice* section names a part and carries its settings. `retriever: chg` and `retriever=chg` are short for
`retriever.name=chg`; `retriever.damping=0.6` is a field of that part. `llm=ollama/qwen3:4b` is short for
`llm.name=ollama llm.model=qwen3:4b`, and lets that model read the passages where nothing is said of the roles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml  # type: ignore[import-untyped]
from annotated_types import Ge, Le
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnrag.errors import ConfigError
from gnnrag.executors import ExecutorConfig
from gnnrag.index_config import IndexConfig, RoleConfig
from gnnrag.parts import from_settings, is_part, layered, part_from_settings, settings_of

T = TypeVar("T")
Share = Annotated[float, Ge(0), Le(1)]
CHOICES = ("method", "retriever", "llm")  # sections that name a part
SHIPPED = Path(__file__).with_name("shipped")  # sample data and config files inside the package


@dataclass
class Choice:
    """A part that a config names: its name, and the part itself with its settings, not yet set up."""

    name: str
    part: Any = None


ROLES = (
    *("thoughts", "chain", "verifier", "reasoner", "agent", "decomposer", "reader", "router", "rewriter"),
    "evidence_extractor",  # MGranRAG
    "pruner",  # Think-on-Graph
    *("concepts", "rules", "path_judge", "redirect"),  # DotRAG
    *("grounder", "refiner", "sub_answerer", "drafter", "evidence_check", "expander"),  # GraphSearch
    *("report_points", "report_reduce", "mentions", "hyper_query", "keywords", "fact_filter"),  # of retrievers
)
# Roles for which `roles=auto` takes the shipped checkpoint: better than the rules on one data set or more (the interval
# excludes 0), and worse on none (docs/results.md). The inner keys are retrievers (None: any), their values the options
# that it was measured with. The checkpoint for thoughts is taken only with the tuned verifier.
PROVEN: dict[str, dict[str | None, dict[str, Any]]] = {
    "verifier": {None: {}},
    "thoughts": {"dense": {"mixed": True}, "chg": {}},
}
RolesConfig = dataclasses.make_dataclass(
    "RolesConfig",
    [("default", str, "offline")] + [(name, RoleConfig, field(default_factory=RoleConfig)) for name in ROLES],  # type: ignore[arg-type]
)


def implementation(roles: Any, name: str) -> str:
    """Return the form of a role in a `RolesConfig`. `auto` is `tuned` if proven for all retrievers, else `offline`."""
    chosen: str = getattr(roles, name).impl or roles.default
    return ("tuned" if None in PROVEN.get(name, ()) else "offline") if chosen == "auto" else chosen


@dataclass
class DataConfig:
    path: str = "data/sample"  # folder or file, see data/README.md
    split: str = "dev"
    questions: str | None = None  # a questions file from elsewhere, on the same corpus
    limit: Annotated[int, Ge(1)] | None = None  # only the first so many questions; for a knowledge base: of each file
    sample: Annotated[int, Ge(1)] | None = None  # sample so many questions, stratified by type
    sample_seed: int = 0  # seed of that sample
    titles: bool = True  # false: drop the titles of passages
    chunk_words: int = 100  # own documents: approximate words per passage
    chunk_overlap: int = 0  # own documents: words that adjacent passages share


@dataclass
class TrackingConfig:
    """Where a run lies, and its tracking. The run directory records everything in any case."""

    root: str = "runs"
    name: str | None = None  # default: what makes the run, such as data and method, and a hash of the settings
    fresh: bool = False  # delete an earlier run of that name
    tracking: Literal["off", "offline", "online"] = "off"  # Weights & Biases
    project: str = "gnnrag"
    group: str | None = None  # groups runs; null: shards and folds of a run form a group


@dataclass
class RunConfig(TrackingConfig):
    warn_bad_replies: Share | None = 0.1  # warn if a larger share of a role's replies is bad
    max_bad_replies: Share | None = 0.5  # above this share: an error, exit code 1; null: never


@dataclass
class AnswerConfig:
    style: Literal["short", "sentence", "long"] | None = None  # null: by the question's kind
    words: Annotated[int, Ge(1)] | None = None  # most words of a long answer; null: 300


@dataclass
class MetricsConfig:
    ks: list[Annotated[int, Ge(1)]] = field(default_factory=lambda: [1, 2, 5, 10, 20, 30, 50, 100, 150, 200])
    f1_variant: Literal["hipporag", "hotpot", "squad"] = "hipporag"
    answer_words: Annotated[int, Ge(1)] | None = None  # long answers are cut to so many, to compare them at one length


@dataclass
class BudgetConfig:
    """Limits for one question; null is unlimited."""

    max_rounds: int = 50  # applies besides every method's own limit
    max_calls: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None


@dataclass
class EvaluateConfig:
    """Everything `gnnrag evaluate` reads."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    retriever: Any = "chg"  # a method with a `default_retriever` overrides this default
    method: Any = "bdtr"
    filter: str | None = None  # SQL that passages have to meet, on metadata too: "source LIKE 'reports/%'"
    roles: RolesConfig = field(default_factory=RolesConfig)  # type: ignore[valid-type]
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    answer: AnswerConfig = field(default_factory=AnswerConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    run: RunConfig = field(default_factory=RunConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)  # no result depends on it
    shard: str | None = None  # 3/16: the third of 16 shards of the questions; without it a run takes their rows
    seed: int = 0  # of the bootstrap for the intervals; predictions use no random numbers
    concurrency: Annotated[int, Ge(1)] = 16


def load_config(
    schema: type[T], source: str | Path | Mapping[str, Any] | None = None, overrides: Sequence[str] = ()
) -> T:
    """Read defaults, then a YAML file (or a mapping), then dotted `key=value` overrides.

    Raises ConfigError: missing file, broken YAML, unknown key (the nearest valid one is named), or a wrong value.
    """
    values = long_form(source if isinstance(source, Mapping) else read_yaml(source)) if source else {}
    for item in overrides:
        if "=" not in item or item.startswith("="):
            raise ConfigError(f"override {item!r} is not of the form key=value")
        try:
            override: Any = OmegaConf.to_container(OmegaConf.from_dotlist([item]))
        except (OmegaConfBaseException, TypeError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"override {item!r} cannot be read: {error}") from error
        values = layered(values, long_form(override))
    names = {field.name for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    if values.get("llm", {}).pop("reads", False) and "roles" in names - values.keys():
        values["roles"] = {"reader": {"impl": "checked"}}
    if "gnn" in values and "gnn" not in names and "retriever" in names:  # gnn.checkpoint: a setting of retriever=gfm
        values = layered(values, {"retriever": values.pop("gnn")})
    if "hub:" in repr(values):
        from gnnrag.hub import with_pulled  # few settings name a hub

        values = with_pulled(values)
    chosen = {name: values.pop(name, {}) for name in CHOICES if name in names}
    config = from_settings(schema, values, "")
    for name, section in chosen.items():
        setattr(config, name, choose(name, section, getattr(config, name)))
        if name == "method" and "retriever" in names:
            wanted = getattr(config, name).part.default_retriever
            setattr(config, "retriever", wanted or getattr(config, "retriever"))  # noqa: B009, B010
    roles: Any = getattr(config, "roles", None)
    if "retriever" in chosen and {"auto", "tuned"} & {roles.default, roles.thoughts.impl}:
        _settle_thoughts(config)
    return config


def choose(kind: str, section: Mapping[str, Any], default: str) -> Choice:
    """Return the part that a section names, or the default, with its settings."""
    values = {key: value for key, value in section.items() if key != "name"}
    name = section.get("name") or default
    return Choice(name, part_from_settings(kind, name, values))


def _settle_thoughts(config: Any) -> None:
    """Set the form and options of the role `thoughts` where they depend on the retriever (`PROVEN`).

    `auto` takes the tuned form only if it is proven for the run's retriever, the method has no routes, the embedder is
    the one that it was trained with, and the verifier is tuned.
    """
    role: RoleConfig = config.roles.thoughts
    options = PROVEN.get("thoughts", {}).get(config.retriever.name)
    method = config.method.part
    if role.path or (method.role_names is not None and "thoughts" not in method.role_names):
        return
    if (role.impl or config.roles.default) == "auto":
        fits = options is not None and config.index.embedder.model == "embedded"
        fits = fits and not method.routes
        role.impl = "tuned" if fits and implementation(config.roles, "verifier") == "tuned" else "offline"
    if options and (role.impl or config.roles.default) == "tuned":
        role.options = {**options, **role.options}


def to_plain(config: Any) -> Any:
    """Return settings as JSON data. A choice becomes a mapping that begins with `name`."""
    if isinstance(config, Choice):
        return {"name": config.name, **(to_plain(config.part) or {})}
    if is_part(type(config)):
        config = settings_of(config)
    elif dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return dict(zip(map(str, config), map(to_plain, config.values()), strict=True))
    if isinstance(config, list | tuple):
        return list(map(to_plain, config))
    return config


# ------------------------------------------------------------------------------------------------------- YAML files
def shipped(path: str | Path) -> Path:
    """Return a path unchanged, but a `data/...` or `configs/...` that exists only in the package as its path there."""
    given, inside = Path(path), SHIPPED / path
    is_named = given.parts[:1] in (("data",), ("configs",)) and ".." not in given.parts and not given.exists()
    return inside if is_named and inside.exists() else given


def read_yaml(source: str | Path, examples: str = "configs/evaluate/sample.yaml") -> dict[str, Any]:
    """Return the settings in a YAML file. Raises ConfigError, naming `examples`, if the file does not exist."""
    path = shipped(source)
    if path.is_dir():
        setting = "index.path" if (path / "passages.lance").is_dir() else "data.path"
        raise ConfigError(f"{path} is a folder, and no config file: {setting}={path} names it")
    if not path.is_file():
        raise ConfigError(f"config file {str(path)!r} does not exist; give a YAML file such as {examples}")
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: must hold a mapping of settings")
    return settings


def long_form(values: Any) -> dict[str, Any]:
    """Expand `retriever: chg`, `roles: offline` and `roles.verifier: tuned` to their long forms."""
    plain = dict(values)
    if isinstance(model := plain.get("llm"), str) and "/" in model:  # `reads`: see `load_config`
        name, _, model = model.partition("/")
        plain["llm"] = {"name": name, "model": model, "reads": True}
    for section in {*CHOICES, "executor"} & plain.keys():
        plain[section] = _long_section(section, plain[section], "name")
    if isinstance(plain.get("index"), Mapping):
        plain["index"] = dict(plain["index"])
    for outer, where, key in ((plain, "roles", "roles"), (plain.get("index"), "index.writers", "writers")):
        if isinstance(outer, dict) and key in outer:
            outer[key] = _long_section(where, outer[key], "default")
            for role in outer[key].keys() - {"default"}:
                outer[key][role] = _long_section(f"{where}.{role}", outer[key][role], "impl")
    return plain


def _long_section(where: str, value: Any, key: str) -> dict[str, Any]:
    """Return a section as a mapping. A bare name becomes its field `key`."""
    if isinstance(value, str):
        value = {key: value}
    if not isinstance(value, Mapping) or not isinstance(value.get(key) or "", str):
        raise ConfigError(f"{where}={value!r}: give a name, or a section of settings with {key}: NAME")
    return dict(value)


def is_given(setting: str, source: str | Path | None, overrides: Sequence[str]) -> bool:
    """Tell whether a config file or an override sets a setting (such as `data.path`), or any within a section."""
    dotted = [item.partition("=")[0] for item in overrides]
    if any(f"{key}.".startswith(f"{setting}.") or setting.startswith(f"{key}.") for key in dotted):
        return True
    value: Any = long_form(read_yaml(source)) if source else {}
    for key in setting.split("."):
        if not isinstance(value, Mapping) or value.get(key) is None:
            return False
        value = value[key]
    return True
