"""How the builds of an index look in Weights & Biases: what each stage took and holds, and the index as an artefact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.cluster.artefacts import index_artefact
from gnnrag.cluster.tracker import Job, Tracker, run_state
from gnnrag.common.files import read_json
from gnnrag.common.records import interpreting
from gnnrag.config import RunConfig
from gnnrag.errors import GnnragError


def track_build(
    config: RunConfig, root: Path, settings: Mapping[str, Any], built: Sequence[str], on_note: Callable[[str], None]
) -> None:
    """Show a build; all builds of an index are one W&B run, whose steps they are. Nothing built, nothing shown.

    Args:
        config: `tracking` and so on; its record is in the folder `index-NAME` of the run root.
        root: the index folder.
        settings: of the index.
        built: the stages that were built.
        on_note: told, once, where that fails.
    """
    if config.tracking == "off" or not built:
        return
    with interpreting(root / "manifest.json", "build the index anew"):
        stages: dict[str, Any] = read_json(root / "manifest.json")["stages"]
    rows = [_row(name, entry, name in built) for name, entry in stages.items()]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    folder = Path(config.root) / f"index-{root.name}"
    tracker = Tracker(config, folder, Job("index", folder.name, {"index": dict(settings)}), on_note)
    try:
        step = int(run_state(folder).get("step", 0)) + 1
        tracker.log({f"seconds/{row['stage']}": row["seconds"] for row in rows if row["built"]}, step)
        tracker.table("tables/stages", columns, [[row.get(key) for key in columns] for row in rows], step)
        keys = {name: entry["key"] for name, entry in stages.items()}
        tracker.artefact(index_artefact(root, keys, config.upload))
        numbers = {f"{row['stage']}/{key}": value for row in rows for key, value in row.items() if key != "stage"}
        tracker.finish({"bytes": sum(row["bytes"] for row in rows), **numbers})
        run_state(folder, step=step)
    except (GnnragError, OSError, ValueError) as error:
        on_note(f"Weights & Biases failed ({error}); the index has all of it")
    finally:
        tracker.finish(code=1)


def _row(name: str, entry: Mapping[str, Any], is_new: bool) -> dict[str, Any]:
    """Return the figures of a stage: its size, and the numbers that it recorded of itself."""
    info = {key: value for key, value in entry["info"].items() if isinstance(value, int | float)}
    return {"stage": name, "built": is_new, "bytes": sum(file["bytes"] for file in entry["files"].values()), **info}
