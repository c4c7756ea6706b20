"""Communities and reports as artefacts: equal to a rebuild, reused where nothing changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnrag.index.index import Index
from gnnrag.index.update import update_index
from gnnrag.index_config import CommunityConfig, RoleConfig
from gnnrag.roles.writers.base import ReportDraft
from gnnrag.roles.writers.report import OfflineReport
from gnnrag.types import Passage
from tests.helpers.indexes import HASH, build
from tests.helpers.shared_data import two_wiki_passages as two_wiki_passages

STAGES = ["communities", "reports"]
PEOPLE = ["Ada Byron", "Otto Brandt", "Vera Lind", "Ines Faro", "Pia Holm", "Max Kern"]
TOWNS = ["Kalmar", "Lubeck", "Tromso", "Quenby", "Port Ansel"]


def passage(number: int, person: int, town: int) -> Passage:
    who, where = PEOPLE[person % 6], f"{TOWNS[town % 5]} {town // 5 or ''}".strip()
    text = f"{who} was born in {where}. The painter Jon Strand met {who} there. {where} lies on the river Sill."
    return Passage(f"p{number}", f"{who} {number}", text)


CORPUS = [passage(i, i, i // 3) for i in range(36)]
REBUILD = replace(HASH, communities=CommunityConfig(max_cluster_size=6))


def info(root: Path, stage: str = "reports") -> dict[str, int]:
    return Index(root).record(stage)["counts"]


def test_what_lies_in_the_folder_is_what_was_built(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS, REBUILD, names=STAGES)
    index = Index(tmp_path / "i")
    communities, reports = index.read("communities"), index.read("reports")
    assert len(communities) == len(reports) == info(tmp_path / "i", "communities")["communities"] > 5
    assert info(tmp_path / "i") == {
        "reports": len(reports), "made": len(reports), "reused": 0,
        "sentences": len(reports.matrix), "computed": len(reports.matrix),
    }  # fmt: skip
    for i, report in enumerate(reports.drafts):
        assert report.title and report.summary and 0 <= report.rating <= 10
        assert bool(len(reports.sentences[i])) == (communities.levels[i] <= 2)
        assert np.linalg.norm(reports.vectors[i]) == pytest.approx(float(communities.levels[i] <= 2), abs=1e-5)
    assert build(tmp_path / "i", CORPUS, REBUILD, names=STAGES) == []


def test_reports_of_communities_that_a_change_leaves_alone_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = [passage(i, i % 6, i // 2) for i in range(120)]
    build(tmp_path / "i", corpus, REBUILD, names=STAGES)
    before = Index(tmp_path / "i").read("reports")
    written, plain = [], OfflineReport.write

    def counted(self: OfflineReport, task: object) -> ReportDraft:
        written.append(task)
        return plain(self, task)  # type: ignore[arg-type]

    monkeypatch.setattr(OfflineReport, "write", counted)
    update_index(tmp_path / "i", remove=["p60"])
    found, after = info(tmp_path / "i"), Index(tmp_path / "i").read("reports")
    assert found["made"] == len(written) >= sum(draft not in before.drafts for draft in after.drafts) > 0
    assert found["reused"] / found["reports"] > 0.4
    assert found["computed"] < found["sentences"] / 2, "vectors of known sentences are kept"


def test_a_change_of_writer_rewrites_all(tmp_path: Path) -> None:
    build(tmp_path / "i", CORPUS, REBUILD, names=STAGES)
    short = replace(REBUILD.writers, report=RoleConfig(options={"findings": 1}))  # type: ignore[type-var]
    build(tmp_path / "i", CORPUS, replace(REBUILD, writers=short), names=STAGES)
    assert info(tmp_path / "i")["reused"] == 0
    assert all(len(r.findings) <= 1 for r in Index(tmp_path / "i").read("reports").drafts)
