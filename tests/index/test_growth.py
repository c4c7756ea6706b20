"""What an index of more passages would take."""

import pytest

from gnnrag.cli import index as script
from gnnrag.cli import planning
from gnnrag.config import EmbedderConfig, ExtractConfig, IndexConfig
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.index import growth
from gnnrag.index.growth import Cost, extended, forecasts
from gnnrag.types import Passage
from tests.helpers.each import each
from tests.helpers.indexes import REPOSITORY

PASSAGES = [Passage(str(i), f"Title {i}", f"Text of passage {i}.") for i in range(1000)]
HASH = IndexConfig(embedder=EmbedderConfig(model="hash"))


@each("stage", ["text", "communities"])
def test_what_grows_is_told_from_what_is_paid_once(stage):
    power = growth.EXPONENTS.get(stage, growth.OTHERS)

    def cost(size):
        return Cost(2 + 1e-3 * size**power, 100_000_000 + 5_000 * size, 700 * size)

    found = extended(stage, (500, 2000), (cost(500), cost(2000)), 1_000_000)
    assert found.seconds == pytest.approx(2 + 1e-3 * 1_000_000**power)
    assert found.resident == 100_000_000 + 5_000_000_000 and found.stored == 700_000_000
    assert found.low < found.seconds < found.high < 4 * found.seconds


def test_noise_is_no_growth():
    found = extended("text", (500, 2000), (Cost(0.3, 90, 10), Cost(0.2, 80, 10)), 1_000_000)
    assert (found.seconds, found.low, found.resident, found.stored) == (0.2, 0.2, 80, 10)
    assert found.high > 100, "or all of it grows"


def test_two_samples_are_spread_over_the_passages(monkeypatch):
    asked = []
    monkeypatch.setattr(
        growth, "measure", lambda root, some, config, stage: asked.append((stage, some)) or Cost(1, 1, 1)
    )
    found = list(forecasts(PASSAGES, HASH, ["lexical"], 10**6, 400))
    assert [f.stage for f in found] == ["passages", "lexical"]
    assert [(stage, len(some)) for stage, some in asked] == [
        (s, n) for s in ("passages", "lexical") for n in (100, 400)
    ]
    assert [int(p.id) for p in asked[0][1]] == list(range(0, 1000, 10))


def test_a_model_is_not_asked_and_few_passages_say_nothing():
    with pytest.raises(
        ConfigError, match=r"the stage extraction asks a model \(triples\).*index\.extract\.method=offline"
    ):
        list(forecasts(PASSAGES, IndexConfig(extract=ExtractConfig(method="prompted")), ["extraction"], 10**6, 400))
    with pytest.raises(ConfigError, match=r"99 passages say nothing of .*: a plan needs 100 or more"):
        list(forecasts(PASSAGES[:99], HASH, ["text"], 10**6, 400))


def test_the_command_prints_a_table(monkeypatch, capsys):
    monkeypatch.setattr(
        growth, "measure", lambda root, some, config, stage: Cost(len(some) / 50, 10**9, 10**4 * len(some))
    )
    monkeypatch.setattr(growth, "OTHERS", 1.0)
    dots = [f"data.path={REPOSITORY / 'data/sample'}", "index.embedder.model=hash", "index.stages=lexical"]
    assert script.main(["plan", *dots, "passages=1000000", "sample=200"]) == 0
    out, told = capsys.readouterr()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    rows = {row[0]: row[1:] for row in cells if len(row) == 5}
    assert rows["lexical"][-2:] == ["10,000", "1,000"] and rows["all"][-2:] == ["20,000", "1,000"]
    assert (rows["lexical"][0], rows["all"][0]) == ("5:33:20", "11:06:40")
    assert "by 50 and 200 of 209 passages" in told


@each("argument", ["passages=many", "sample=0", "passages=-3"])
def test_numbers_are_numbers(argument):
    with pytest.raises(ConfigError, match=f"{argument}: give a whole number above 0"):
        planning.plan([argument])


@pytest.mark.slow  # a process for each stage
def test_stages_are_measured_in_processes_of_their_own(tmp_path):
    for stage in ("passages", "lexical"):
        cost = growth.measure(tmp_path / "index", PASSAGES, HASH, stage)
        assert cost.seconds > 0 and cost.resident > 10**7 and cost.stored > 10**4
    with pytest.raises(GnnragError, match="id"):
        growth.measure(tmp_path / "other", [*PASSAGES, PASSAGES[0]], HASH, "passages")
