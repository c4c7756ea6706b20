"""The settings that an index records, and those it takes from the caller whenever it is opened.

The allow-list is `gnnrag.index_config.RECORDED`: the manifest holds nothing else, and of the manifest of a stranger, or
of an older version, nothing else is believed. Nothing in it is evaluated (`gnnrag.common.yaml_config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from gnnrag.common.files import digest
from gnnrag.config import (
    EmbedderConfig,
    ExtractConfig,
    IndexConfig,
    KnowledgeConfig,
    RoleConfig,
    TextConfig,
    read_plain,
    to_plain,
)
from gnnrag.errors import ArtefactError, ConfigError, NotGivenError
from gnnrag.index.embedder import SHIPPED, Embedder, RecordedName, is_folder, make_embedder
from gnnrag.index.store import Store
from gnnrag.index_config import A_FILE, A_FOLDER, RECORDED, is_model_folder, recorded_options, with_own_model
from gnnrag.registry import WRITERS
from gnnrag.text.analyse import RULES, analyser_identity, resolve_language

_PATHS = ((ExtractConfig, "path"), (KnowledgeConfig, "schema"))
# And the slashes that a name may have: that of an embedder on a hub has one.
_FOLDERS: dict[tuple[type, str], int] = {(EmbedderConfig, "model"): 1, (TextConfig, "language"): 0}
_ANY = ("auto", "spacy")  # analysers that are what is installed


def recorded_settings(config: IndexConfig) -> dict[str, Any]:
    """Return what the manifest holds of the settings that an index is made with."""
    found = only_recorded(to_plain(config))
    found["embedder"]["model"] = A_FOLDER if is_folder(config.embedder.model) else to_plain(config.embedder.model)
    return found


def only_recorded(plain: Mapping[str, Any], kind: type = IndexConfig) -> dict[str, Any]:
    """Return what stands in the allow-list of settings as plain data; TypeError where a section is none."""
    defaults, kept = kind(), {}
    for name in (name for name in RECORDED[kind] if name in plain):
        value, section = plain[name], getattr(defaults, name)
        if is_dataclass(section):
            if not isinstance(value, Mapping):
                raise TypeError(f"{name} is no section")
            value = only_recorded(value, type(section))
        elif (kind, name) in _PATHS and value is not None:
            value = A_FILE
        elif (kind, name) == (RoleConfig, "options"):
            value = recorded_options(value) if isinstance(value, Mapping) else {}
        elif (kind, name) in _FOLDERS and (
            value.startswith((".", "/", "~")) or value.count("/") > _FOLDERS[kind, name]
        ):
            value = A_FOLDER
        kept[name] = value
    return kept


def stored_config(store: Store, caller: IndexConfig | None = None) -> IndexConfig:
    """Return the settings that an index was made with, completed by those that only its caller can give.

    Raises ArtefactError where the manifest has none, and NotGivenError for an expression of the config it was built
    with that `caller` lacks. Without a caller, what needs a model, a file or a folder raises NotGivenError.
    """
    own = caller or IndexConfig()
    try:
        saved = only_recorded(store.manifest["settings"])
        if not {"embedder", "text"} <= saved.keys():
            raise KeyError("embedder, text")
        found = read_plain(IndexConfig, saved)
    except NotGivenError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise ArtefactError(f"index {store.root} holds no readable settings ({error}); build it again") from error
    if found.text.language in _ANY:  # whatever has been installed since
        found = replace(found, text=replace(found.text, language=recorded_analyser(store) or found.text.language))
    return _completed(replace(found, path=str(store.root)), own)


def _completed(config: IndexConfig, own: IndexConfig) -> IndexConfig:
    """Return recorded settings with what the caller says of all that an index does not say."""
    writers: Any = config.writers
    roles = {name: _role(name, writers, own.writers) for name in WRITERS}
    local = {
        f.name: getattr(own, f.name) for f in fields(IndexConfig) if f.name not in (*RECORDED[IndexConfig], "path")
    }
    return replace(
        config,
        embedder=replace(
            config.embedder, model=_model(config.embedder.model, own.embedder.model), device=own.embedder.device
        ),
        text=replace(config.text, language=_analyser(config.text.language, own.text.language)),
        extract=replace(config.extract, path=config.extract.path and (own.extract.path or A_FILE)),
        knowledge=replace(config.knowledge, schema=config.knowledge.schema and (own.knowledge.schema or A_FILE)),
        writers=replace(writers, **roles),
        **local,
    )


def _role(name: str, recorded: Any, own: Any) -> RoleConfig:
    """Return a writer: who it is as recorded; a model, and how it is asked, as the caller has it."""
    role, mine = getattr(recorded, name), getattr(own, name)
    if name != "triples" and (role.impl or recorded.default) != "prompted":
        return role
    is_mine = name == "triples" or (mine.impl or own.default) == "prompted"
    return replace(mine, impl=role.impl, path=None, options=mine.options if is_mine else role.options)


def _model(recorded: str, own: str) -> str:
    """Return the embedder of an index, unchecked: one that ships, a given folder, a name of both, or RecordedName."""
    if recorded in SHIPPED:
        return recorded
    if is_folder(own) or own == recorded:
        return own
    return A_FOLDER if recorded == A_FOLDER else RecordedName(recorded)


def _analyser(recorded: str, own: str) -> str:
    return own if recorded == A_FOLDER and is_model_folder(own) else recorded


def without_caller(config: IndexConfig) -> IndexConfig:
    """Return settings without what only the caller can give: what needs such a thing raises NotGivenError."""
    writers: Any = config.writers
    roles = {name: replace(getattr(writers, name), llm=None, model=None, settings=None) for name in WRITERS}
    return replace(
        config,
        text=replace(config.text, language=A_FOLDER if is_model_folder(config.text.language) else config.text.language),
        extract=replace(config.extract, path=config.extract.path and A_FILE),
        knowledge=replace(config.knowledge, schema=config.knowledge.schema and A_FILE),
        writers=replace(writers, **roles),
        llm=None,
    )


def open_embedder(store: Store, config: IndexConfig, caller: IndexConfig | None = None) -> Embedder:
    """Return the embedder that made the vectors of an index; `config` is its `stored_config`.

    Raises NotGivenError where it is in a folder and the caller gave none, ArtefactError where it is another one.
    """
    model, own = config.embedder.model, caller.embedder.model if caller else EmbedderConfig().model
    if own not in (EmbedderConfig().model, model):
        raise ArtefactError(f"index {store.root} was made with index.embedder.model={model}, not {own}; leave it out")
    embedder = make_embedder(config.embedder)
    if not is_folder(model):
        return embedder
    if wanted := recorded_weights(store):
        is_same = wanted == embedder.weights
    else:  # of an index from before they were recorded
        made_so = digest([digest(["embeddings", embedder.identity]), [store.key("passages")]])
        is_same = store.key("embeddings") in (None, made_so)
    if not is_same:
        raise ArtefactError(
            f"index {store.root} was made with an embedder of other weights than index.embedder.model={model}; give "
            "the folder of the one that it was made with"
        )
    return embedder


def open_analyser(store: Store, config: IndexConfig) -> str:
    """Return the analyser that found the phrases of an index, for questions to be analysed alike.

    Raises NotGivenError where it is in a folder and the caller gave none, ArtefactError where it is not that one.
    """
    made_by = recorded_analyser(store)
    if made_by in ("", RULES):
        return RULES
    is_folder = made_by.startswith(f"{A_FOLDER}:")
    try:
        if not is_folder and (is_model_folder(made_by) or made_by in _ANY):
            raise ConfigError("that names no model")
        analyser = resolve_language(_analyser(A_FOLDER, config.text.language) if is_folder else made_by)
    except NotGivenError:
        raise
    except ConfigError as error:
        raise ArtefactError(
            f"index {store.root} was analysed by {made_by!r}, and so must questions be: {error}"
        ) from error
    if analyser_identity(analyser) != made_by:
        raise ArtefactError(
            f"index {store.root} was analysed by another spaCy model than that in index.text.language={analyser}; give "
            "the folder of the one that it was made with"
        )
    return analyser


def recorded_analyser(store: Store) -> str:
    """Return what an index says of the analyser of its passages (`analyser_identity`); empty where it says nothing."""
    made_by = store.info("text").get("language") if store.key("text") else ""
    return made_by if isinstance(made_by, str) else ""


def recorded_weights(store: Store) -> str:
    """Return the digest of the embedder in a folder that made the vectors of an index; empty where it is a name."""
    found = store.manifest.get("embedder_weights")
    return found if isinstance(found, str) else ""


def recorded_model(store: Store, writer: str) -> dict[str, Any]:
    """Return what an index says of the model that a writer asked (`IndexTasks.model`)."""
    models = store.manifest.get("models")
    if isinstance(models, Mapping):
        found = models.get(writer)
        return dict(found) if isinstance(found, Mapping) else {}
    settings = store.manifest["settings"]  # of an index from before models were recorded: names alone
    llm, writers = settings.get("llm"), settings.get("writers")
    role = writers.get(writer) if isinstance(writers, Mapping) else None
    try:
        own = with_own_model(read_plain(RoleConfig, role or {}), llm if isinstance(llm, Mapping) else None)  # type: ignore[arg-type]
    except (ConfigError, TypeError, AttributeError):
        return {}
    model = own.model or (own.settings or {}).get("model")
    return {key: value for key, value in (("backend", own.llm), ("model", model)) if isinstance(value, str)}
