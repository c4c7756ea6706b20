"""The context of a report: order of relations, substitution by sub-reports, cuts, buckets, passages."""

from __future__ import annotations

from gnnrag.extract.base import EntityRecord, Extraction, RelationRecord
from gnnrag.graphs.communities import Communities, find_communities
from gnnrag.graphs.folding import fold
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.reports import ReportTasks
from gnnrag.roles.writers.base import ReportDraft
from gnnrag.types import Passage


def described(*rows: tuple[str, str]) -> list[Extraction]:
    return [
        Extraction((a, b), (), 0, (EntityRecord(a, "", f"It is {a}."),), (RelationRecord(a, b, f"{a} met {b}."),))
        for a, b in rows
    ]


def ring_of_cliques(cliques: int = 30) -> tuple[KnowledgeGraph, Communities]:
    """So many small cliques that modularity joins neighbours: a hierarchy of two levels."""
    rows = []
    for i in range(cliques):
        names = [f"k{i:02}n{j}" for j in range(4)]
        rows += [(a, b) for a in names for b in names if a < b]
        rows.append((f"k{i:02}n0", f"k{(i + 1) % cliques:02}n1"))
    graph = fold(described(*rows))
    return graph, find_communities(graph, max_size=4)


def test_relations_come_by_the_degrees_of_their_ends_and_bring_them() -> None:
    graph = fold(described(("hub", "a"), ("hub", "b"), ("hub", "c"), ("a", "b")))
    communities = find_communities(graph)
    task = ReportTasks(graph, communities, []).task(0, [None])
    assert [(head, tail) for _, head, tail, _ in task.relations] == [
        ("a", "hub"),
        ("b", "hub"),
        ("a", "b"),
        ("c", "hub"),
    ]
    assert [e[1] for e in task.entities] == ["hub", "a", "b", "c"], "most connected first"
    assert task.relations[0][0] == f"r:{graph.relation_id(1)}" and task.relations[0][3] == "hub met a."
    assert task.entities[0][3] == "It is hub." and task.reports == () and task.passages == ()


def test_what_overflows_is_cut_from_the_end() -> None:
    graph = fold(described(("hub", "a"), ("hub", "b"), ("hub", "c"), ("a", "b")))
    tasks = ReportTasks(graph, find_communities(graph), [], max_tokens=10**9)
    whole = tasks.task(0, [None])
    sizes = []
    for budget in range(0, 120, 4):
        tasks.max_tokens = budget
        task = tasks.task(0, [None])
        assert task.relations == whole.relations[: len(task.relations)] and task.entities, "never nothing at all"
        sizes.append(len(task.relations))
    assert sizes == sorted(sizes) and sizes[0] == 0 and sizes[-1] == 4


def test_the_largest_parts_give_way_to_their_reports() -> None:
    """Q-MS-3: the release would cut here."""
    graph, communities = ring_of_cliques()
    parent = next(i for i in range(len(communities)) if len(communities.children[i]) >= 2)
    children = communities.children[parent].tolist()
    drafts: list[ReportDraft | None] = [ReportDraft(f"title {i}", f"summary {i}") for i in range(len(communities))]
    tasks = ReportTasks(graph, communities, [], max_tokens=10**6)
    whole = tasks.task(parent, drafts)
    assert whole.reports == () and len(whole.relations) == len(communities.relations[parent])
    tasks.max_tokens = tasks._cost(communities.relations[parent]) - 1
    one = tasks.task(parent, drafts)
    largest = max(children, key=lambda c: (len(communities.members[c]), -c))
    assert one.reports == ((f"title {largest}", f"summary {largest}"),)
    inside = {f"r:{graph.relation_id(r)}" for r in communities.relations[largest].tolist()}
    assert {r[0] for r in one.relations} == {r[0] for r in whole.relations} - inside, "only its own relations left"
    tasks.max_tokens = 40
    assert len(tasks.task(parent, drafts).reports) == len(children)
    assert tasks.task(parent, [None] * len(communities)).reports == (), "without reports there is only the cut"


def test_all_relations_of_an_entity_reach_the_context() -> None:
    """Q-MS-4: the release keeps one."""
    graph = fold(described(*(("hub", f"n{i}") for i in range(8))))
    assert len(ReportTasks(graph, find_communities(graph), []).task(0, [None]).relations) == 8


def test_buckets_show_their_members_and_triples_their_passages() -> None:
    graph = fold([Extraction(("x",)), Extraction(("y", "z"), (("y", "near", "z"),))])
    passages = [Passage("p0", "", "About x."), Passage("p1", "", "About y and z.")]
    task = ReportTasks(graph, find_communities(graph), passages).task(0, [None])
    assert sorted(e[1] for e in task.entities) == ["x", "y", "z"]
    assert [p.id for p in task.passages] == ["p:p1", "p:p0"], "those of most members first"
    assert task.relations == (("r:y | near | z", "y", "z", "y near z"),)
