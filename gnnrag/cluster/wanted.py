"""What a command line asks for: evaluations (points of a grid, rows of the papers' tables) as plain data."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gnnrag.cluster.grid import Point
from gnnrag.cluster.job import Target
from gnnrag.common.files import digest, read_json, remove, write_json
from gnnrag.common.yaml_config import MARK
from gnnrag.config import CHOICES, EvaluateConfig, IndexConfig, load_config, read_yaml, to_plain
from gnnrag.datasets.source import find_source
from gnnrag.errors import ConfigError
from gnnrag.index.plan import closure
from gnnrag.reports.inputs import absent_analyser, absent_data, absent_model
from gnnrag.reports.papers import PaperTable, load_table
from gnnrag.reports.reproduction import checked, resolved
from gnnrag.run.pipeline import index_path, index_settings, needed_stages
from gnnrag.run.rundir import decisive, roles_label

LIBRARY = Path(__file__).resolve().parents[1]
CACHE = LIBRARY.parent / ".cache" / "resolved"  # the caller's own: what is read there decides what is run
REPRODUCE = "inference/reproduce.py"
_CODE = (".py", ".yaml")  # what decides how settings are read


@dataclass(frozen=True)
class Evaluation:
    """One run of `inference/evaluate.py`.

    Attributes:
        label: what a person calls it.
        config: its settings, those that differ from the defaults.
        decisive: those that decide its predictions.
        stages: that it reads, of the index.
        index: settings of the index, resolved.
        missing: why it cannot run here, whatever the machine holds.
    """

    label: str
    config: Mapping[str, Any] = field(default_factory=dict)
    decisive: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    index: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""

    @property
    def data(self) -> tuple[str, str]:
        """Where passages and questions are, as configured."""
        d = self.config.get("data", {})
        return d.get("path", EvaluateConfig().data.path), d.get("questions") or ""

    @property
    def root(self) -> str:
        """Folder of all runs."""
        return str(self.config.get("run", {}).get("root", EvaluateConfig().run.root))

    @property
    def key(self) -> str:
        """Hash of what makes it another run."""
        return digest([self.decisive, *self.data, self.root, self.config.get("run", {}).get("name")])[:8]

    @property
    def name(self) -> str:
        """Fit for a folder: readable in front, the key behind."""
        data, split = Path(self.data[0]).stem, self.decisive["data"]["split"]
        parts = [data, split, *(self.decisive[part]["name"] for part in ("method", "retriever"))]
        return "-".join([*parts, roles_label(self.decisive["roles"]), self.key])


def is_table(source: Path) -> bool:
    """Tell whether a file is a table of a paper."""
    return "columns" in read_yaml(source, "configs/evaluate/sample.yaml")


def is_training(source: Path) -> bool:
    """Tell whether a file says how something is trained."""
    return "fit" in read_yaml(source, "configs/evaluate/sample.yaml")


def evaluations(source: Path, point: Point) -> list[Evaluation]:
    """Return what a config file asks for at a point of the grid: one run, or the rows of a table.

    Raises:
        ConfigError: a setting is wrong; point or row is named.
    """
    if is_table(source):
        return list(_rows(load_table(source, point.overrides), point))
    try:
        config = checked(load_config(EvaluateConfig, source, point.overrides))
    except ConfigError as error:
        raise ConfigError(f"{source}{f', {point.label}' if point.label else ''}: {error}") from error
    return [evaluation_of(config, "/".join(filter(None, (source.stem, point.label))))]


def _rows(table: PaperTable, point: Point) -> Iterator[Evaluation]:
    where = f"{table.path.parent.name}/{table.path.stem}"
    for row in table.rows:
        label = " / ".join(filter(None, (where, row.name, point.label)))
        if counted := row.missing or (table.counts and f"is counted, not run: python {REPRODUCE} {table.path}"):
            yield Evaluation(label, missing=counted)
        else:
            yield evaluation_of(resolved(table, row, point.overrides), label)


def evaluation_of(config: EvaluateConfig, label: str) -> Evaluation:
    """Return a run as plain data. Raises ConfigError where it would start over each time."""
    if config.run.fresh:
        raise ConfigError("run.fresh=true would throw away what a job had done whenever it goes on; delete the run")
    plain = to_plain(config, values=True)
    settings = to_plain(index_settings(config), values=True)
    stages = tuple(closure(needed_stages(config), config.index))
    return Evaluation(label, _trimmed(plain), decisive(to_plain(config)), stages, settings)


_DEFAULTS: dict[str, Any] = to_plain(EvaluateConfig())


def _trimmed(plain: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings that differ from the defaults; a named part keeps all of its own."""
    kept: dict[str, Any] = {}
    for key, value in plain.items():
        usual = (_DEFAULTS if defaults is None else defaults).get(key)
        if defaults is None and key in CHOICES:
            kept[key] = value
        elif isinstance(value, Mapping) and isinstance(usual, Mapping) and usual:
            if inner := _trimmed(value, usual):
                kept[key] = inner
        elif value != usual:
            kept[key] = value
    return kept


def cached(
    sources: Sequence[Path], points: Sequence[Point], on_note: Callable[[str], None] = lambda note: None
) -> list[list[Evaluation]]:
    """Return the evaluations of each source; all tables of the papers take minutes to resolve, so they are kept.

    What is kept, in `CACHE`, is used again while neither a config nor a file of the library has changed. What names
    expressions is not kept: their values are for no file.

    Args:
        sources: config files.
        points: of the grid.
        on_note: told about each table that is resolved.
    """
    code = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(LIBRARY.rglob("*")) if p.suffix in _CODE]
    found = []
    for source in sources:
        asked = [source.read_text("utf-8"), *(o for p in points for o in p.overrides)]
        key = digest([str(source), asked, [p.label for p in points], code])
        path = CACHE / f"{source.parent.name}-{source.stem}-{key[:16]}.json"
        try:
            raw = read_json(path)
        except (FileNotFoundError, ValueError):
            if is_table(source):
                on_note(f"{source}: resolving its rows, once")
            raw = [asdict(one) for point in points for one in evaluations(source, point)]
            if not any(MARK in text for text in asked):
                for old in CACHE.glob(f"{glob.escape(f'{source.parent.name}-{source.stem}')}-*.json"):
                    remove(old, CACHE)
                write_json(path, raw)
                raw = json.loads(json.dumps(raw))
        found.append([Evaluation(**{**row, "stages": tuple(row["stages"])}) for row in raw])
    return found


def index_folder(evaluation: Evaluation) -> str:
    """Return the folder of the index that an evaluation reads. Raises DataError where its data are not here."""
    settings = IndexConfig(path=evaluation.index.get("path"), root=evaluation.index["root"])
    return str(index_path(settings, find_source(Path(evaluation.data[0])).name))


def target_of(evaluation: Evaluation) -> Target:
    """Return what an evaluation makes. Raises DataError where its data are not here."""
    name = str(evaluation.config.get("run", {}).get("name") or "")
    data = tuple(map(to_plain, evaluation.data))  # as a run records them
    return Target(evaluation.root, (), evaluation.decisive, data, index_folder(evaluation), name)  # type: ignore[arg-type]


@cache
def _absent(path: str, questions: str, split: str) -> str:
    return absent_data(path, split, questions or None)


def unavailable(evaluation: Evaluation) -> str:
    """Return why an evaluation cannot run on this machine: a part, data or a model is not here; empty where it can."""
    if evaluation.missing:
        return evaluation.missing
    absent = _absent(*evaluation.data, evaluation.decisive["data"]["split"])
    absent = absent or absent_model(evaluation.index["embedder"]["model"])
    return absent or absent_analyser(evaluation.index["text"]["language"])
