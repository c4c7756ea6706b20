"""Wordings, cues, rules, sampling and templates, each by itself."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from gnnrag.common.tables import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.questions.authors import (
    PathNames,
    Telling,
    broken_rules,
    faults,
    is_leaking,
    parse_questions,
    pick_different,
)
from gnnrag.questions.paths import (
    WORDINGS,
    GraphPath,
    PathSampler,
    SamplingRules,
    Step,
    cue_of,
    fits,
    names_fit,
    noun_of,
    wording_of,
)
from gnnrag.roles.prompting import MalformedError
from tests.helpers.each import each


def graph_of(triples, types=None, texts=None):
    """A knowledge graph whose passage i states relation i."""
    names = sorted({name for head, _, tail in triples for name in (head, tail)}, key=str.casefold)
    at = {name: i for i, name in enumerate(names)}
    n, empty = len(triples), Lists.of([])
    return KnowledgeGraph(
        num_passages=n,
        names=names,
        types=[(types or {}).get(name, "person") for name in names],
        descriptions=[""] * len(names),
        aliases=[()] * len(names),
        entity_passages=Lists.of([[i for i, (h, _, t) in enumerate(triples) if name in (h, t)] for name in names]),
        ends=np.array([[at[h], at[t]] for h, _, t in triples], dtype=np.int32),
        labels=[label for _, label, _ in triples],
        texts=texts or [""] * n,
        weights=np.ones(n),
        relation_passages=Lists.of([[i] for i in range(n)]),
        hyper_texts=[],
        hyper_scores=np.zeros(0),
        hyper_members=empty,
        hyper_importance=np.zeros(0),
        hyper_passages=empty,
    )


# --------------------------------------------------------------------------------------------------------- wordings
@each("key", sorted(WORDINGS))
def test_every_wording_can_be_filled_in(key):
    wording = WORDINGS[key]
    assert wording_of(key, key in ("born_on", "died_on", "release_year")) is wording
    phrases = [*wording.tail, *wording.head]
    assert len(wording.tail) > 1 and len(wording.head) > 1 and all(p.startswith(("the ", "what ")) for p in phrases)
    assert wording.ask_tail.endswith("?") and wording.ask_head.endswith("?")
    for text in (*phrases, wording.ask_tail, wording.ask_head):
        filled = text.format(x="Ada", k="film")
        assert text.count("{x}") == 1 and "{" not in filled and "Ada" in filled


@each(
    "predicate, is_time, tail, ask",
    [
        ("was directed by", False, "the director of X", "Who directed X?"),
        ("starred_actors", False, "the actor in X", "Who stars in X?"),
        ("born in", False, "the birthplace of X", "Where was X born?"),
        ("was born in", True, "the date of birth of X", "When was X born?"),
        ("is located in", False, "the K in which X is located", "Where is X located?"),
        ("represented", False, "the K represented by X", "Which K was represented by X?"),
        ("held in", False, "the K in which X was held", "In which K was X held?"),
        ("was published in", True, "the date when X was published", "When was X published?"),
        ("lived in", False, "the K in which X lived", "What is the K in which X lived?"),
        ("flows to", False, "the K to which X flows", "What is the K to which X flows?"),
    ],
)
def test_predicates_are_told(predicate, is_time, tail, ask):
    wording = wording_of(predicate, is_time)
    assert (wording.tail[0].format(x="X", k="K"), wording.ask_tail.format(x="X", k="K")) == (tail, ask)


@each(
    "predicate, is_time",
    [("is", False), ("has", False), ("was a", False), ("born on", False), ("located in", True),
     ("led to a fall of", False), ("lived in", True), ("", False), ("; drop", False), ("known as", False)],
)  # fmt: skip
def test_what_says_too_little_is_not_told(predicate, is_time):
    assert wording_of(predicate, is_time) is None


def test_types_name_and_exclude():
    assert [noun_of(t, "thing") for t in ("movie|person", "organization", "", "odd")] == [
        "film",
        "organisation",
        "thing",
        "thing",
    ]
    assert noun_of("work", "film") == "film" and noun_of("work", "thing") == "work"
    directed = WORDINGS["directed_by"]
    assert fits(directed, "movie", "person") and fits(directed, "", "") and fits(directed, "work", "person|movie")
    assert not fits(directed, "person", "person") and not fits(directed, "movie", "location")
    assert names_fit(directed, "Up", "Ann Lee") and not names_fit(directed, "Up", "Louis")
    assert not names_fit(WORDINGS["son_of"], "John II", "Ann Lee")


@each(
    "sentence, subject, name, cue",
    [
        ("Red Tide is a 1931 drama film directed by Ann Lee and starring Bo Ek.", "Red Tide", "Ann Lee", "directed by"),
        ("Red Tide is a 1931 drama film directed by Ann Lee and starring Bo Ek.", "Red Tide", "Bo Ek", "starring"),
        ("The film stars Bo Ek, Cy Fox and Di Gray.", "Red Tide (film)", "Di Gray", "stars"),
        ("He was born in Oslo.", "Bo Ek", "Oslo", "born in"),
        ("Bo Ek (3 May 1900) was the third son of Al Ek.", "Bo Ek", "Al Ek", "son of"),
        ("Bo Ek married Eve Ray, daughter of Jim Ray.", "Bo Ek", "Jim Ray", None),  # her father
        ("Red Tide is a film about Cy Fox, who was born in Oslo.", "Red Tide", "Oslo", None),  # his birthplace
        ("Ann Lee was born in Bergen; the film was directed by Bo Ek.", "Ann Lee", "Bo Ek", None),
        ("In 1931 the book was written by Ann Lee.", "Red Tide", "Ann Lee", None),  # another subject opens
        ("Red Tide is a film with Bo Ek.", "Red Tide", "Bo Ek", None),
        ("Red Tide was directed by Ann Lee.", "Red Tide", "Bo Ek", None),
        ("", "A", "B", None),
    ],
)
def test_cues(sentence, subject, name, cue):
    assert cue_of(sentence, subject, name) == cue


# ------------------------------------------------------------------------------------------------------------ rules
NAMES = PathNames(
    (("Halden Bridge",), ("Mira Tolvanen", "M. Tolvanen"), ("Orsa School",), ("Benedikt Aune (painter)", "Ben"))
)


@each(
    "question, fault",
    [
        ("Who founded the school of the designer of Halden Bridge?", None),
        ("Who founded the school of the designer of the halden bridge?", None),
        ("Which painter founded the school of the designer of Halden Bridge?", None),  # a qualifier is no name
        ("Who founded the school of the designer of that bridge?", "does not name 'Halden Bridge'"),
        ("Who founded the school of M. Tolvanen of Halden Bridge?", "names 'M. Tolvanen'"),
        ("Who founded the Orsa School, linked to Halden Bridge?", "names 'Orsa School'"),
        ("Which Benedikt founded the school linked to Halden Bridge?", "gives words of the answer away: benedikt"),
        ("Who is Ben to the designer of Halden Bridge?", "names 'Ben'"),
        ("Tell me who founded the school of Halden Bridge's designer.", "ends with a question mark"),
        ("Who of Halden Bridge?", "it has 4 words"),
        ("Who founded\nthe school of the designer of Halden Bridge?", "one paragraph"),
    ],
)
def test_each_rule_is_checked(question, fault):
    wrong = broken_rules(question, NAMES)
    assert bool(wrong) == bool(fault) and (fault is None or any(fault in text for text in wrong))


def test_an_alias_of_the_start_excuses_no_word_of_the_answer():
    path = PathNames((("Boston College", "Massachusetts College"), ("Bo Ek",), ("Massachusetts",)))
    assert not is_leaking(path) and not is_leaking(NAMES)
    assert is_leaking(PathNames((("Frank Sinatra Jr.",), ("A B",), ("Frank",))))  # its start says the answer
    assert is_leaking(PathNames((("Paris Hilton",), ("Paris",), ("Rome",))))
    (fault,) = faults("Which colony, perhaps Massachusetts Bay, is home to a man of Boston College?", path)[1:]
    assert fault == ("answer given away", "it gives words of the answer away: massachusetts")


def test_the_most_different_are_picked_in_order():
    vectors = np.array([[1, 0], [0.96, 0.28], [0, 1], [0.6, 0.8]])
    assert pick_different(vectors, 5, 0.95) == [0, 2, 3]
    assert pick_different(vectors, 2, 0.95) == [0, 2] and pick_different(vectors, 5, 0.95, kept=[1]) == [1, 2, 3]


# --------------------------------------------------------------------------------------------------------- sampling
def film(i):
    return f"Vale{i} Tor{i}"


def random_triples(rng, films=40, people=25):
    found = []
    for i in range(films):
        for label, count in (
            ("directed_by", 1),
            ("written_by", rng.randint(1, 2)),
            ("starred_actors", rng.randint(0, 2)),
        ):
            found += [(film(i), label, "Ann{0} Lee{0}".format(rng.randrange(people))) for _ in range(count)]
    return list(dict.fromkeys(found))


def described_by(triples, known, label, is_forward, seen):
    """What a description leads to, found in the triples alone."""
    ends = {(t if is_forward else h) for h, told, t in triples if told == label and (h if is_forward else t) == known}
    return ends - set(seen)


@each("hops", [2, 3, 4])
def test_paths_are_simple_without_shortcuts_and_lead_to_one_entity(hops):
    triples = random_triples(random.Random(3))
    graph = graph_of(triples, {film(i): "movie" for i in range(40)})
    rules = SamplingRules(hops=hops, min_degree=2, percentile=90)
    sampler = PathSampler(graph, rules)
    around = {name: {t if h == name else h for h, _, t in triples if name in (h, t)} for name in graph.names}
    limit = np.percentile([len(others) for others in around.values()], 90)
    paths = list(sampler.draw(5, 400))
    assert len({p.nodes for p in paths}) > 10 and sampler.max_degree == limit
    labels = {"directed_by": "directed_by", "written_by": "written_by", "stars": "starred_actors"}
    for path in paths:
        names = [graph.names[n] for n in path.nodes]
        assert len(set(names)) == hops + 1 == len(path.steps) + 1
        for i, j in itertools.combinations(range(hops + 1), 2):
            assert (names[j] in around[names[i]]) == (j == i + 1)
        assert all(2 <= len(around[name]) <= limit for name in names)
        for i, step in enumerate(path.steps):
            label = labels[step.wording.key]
            assert described_by(triples, names[i], label, step.is_forward, names[:i]) == {names[i + 1]}
            everything = described_by(triples, names[i], label, step.is_forward, ())
            assert step.is_other == bool(everything & set(names[:i]))
            head, _, tail = triples[step.relation]
            assert {head, tail} == {names[i], names[i + 1]} and (head == names[i]) == step.is_forward


def test_the_seed_decides_and_types_are_heeded():
    triples = random_triples(random.Random(3))
    types = {film(i): "movie" for i in range(40)} | {film(1): "unsure", film(2): "", film(3): ""}
    graph = graph_of(triples, types)
    drawn = [[p.nodes for p in PathSampler(graph, SamplingRules(), [film(3)]).draw(seed, 3000)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    names = {graph.names[n] for nodes in drawn[0] for n in nodes}
    assert film(3) in names and not names & {film(1), film(2)}
    loose = PathSampler(graph, SamplingRules(typed=False))
    names = {graph.names[n] for path in loose.draw(1, 3000) for n in path.nodes}
    assert film(2) in names and film(1) not in names


def test_without_wordings_every_relation_with_a_text_leads_on():
    triples = [("A", "x", "B"), ("B", "", "C"), ("C", "y", "D"), ("D", "y", "E"), ("A", "x", "F"), ("F", "q", "G")]
    graph = graph_of(triples, texts=["", "", "", "", "", "F q G."])
    rules = SamplingRules(hops=2, min_degree=1, percentile=100, worded=False)
    found = {tuple(graph.names[n] for n in p.nodes) for p in PathSampler(graph, rules).draw(0, 500)}
    assert found == {
        ("C", "D", "E"),
        ("E", "D", "C"),
        ("A", "F", "G"),
        ("G", "F", "A"),
        ("B", "A", "F"),
        ("F", "A", "B"),
    }
    assert list(PathSampler(graph_of([("A", "", "B")]), SamplingRules(worded=False)).draw(0, 9)) == []


# -------------------------------------------------------------------------------------------------------- templates
def path_of(graph, *names_and_labels):
    names, steps = names_and_labels[::2], []
    at = graph.position
    for known, label, found in zip(names, names_and_labels[1::2], names[1:], strict=False):
        ends = [tuple(row) for row in graph.ends.tolist()]
        forward = (at[known], at[found]) in ends
        row = ends.index((at[known], at[found]) if forward else (at[found], at[known]))
        steps.append(Step(at[known], at[found], row, forward, wording_of(label)))
    return GraphPath(tuple(at[name] for name in names), tuple(steps))


def test_a_path_is_told_in_nested_descriptions():
    graph = graph_of(
        [("Up", "directed_by", "Ann Lee"), ("Down", "written_by", "Ann Lee"), ("Down", "starred_actors", "Bo Ek")],
        {"Up": "movie", "Down": "movie"},
    )
    telling = Telling(
        graph.names, graph.types, path_of(graph, "Up", "directed_by", "Ann Lee", "written_by", "Down", "stars", "Bo Ek")
    )
    told = telling.questions()
    assert told[0] == "Who stars in the film that the director of Up wrote?"
    assert "Consider the director of Up, and then the film that this person wrote. Who stars in this film?" in told
    assert telling.parts() == ["Who directed Up?", "Which film was written by #1?", "Who stars in #2?"]
    names = PathNames((("Up",), ("Ann Lee",), ("Down",), ("Bo Ek",)))
    assert len(told) >= 6 and not [q for q in told if broken_rules(q, names)] and not telling.is_vague


def test_verbs_do_not_meet_and_unknown_things_are_vague():
    written = [("Down", "Ann Lee"), ("Down", "Bo Ek"), ("Over", "Bo Ek")]
    graph = graph_of([(film, "written_by", name) for film, name in written],
                     {"Down": "movie", "Over": "movie"})  # fmt: skip
    path = path_of(graph, "Ann Lee", "written_by", "Down", "written_by", "Bo Ek", "written_by", "Over")
    assert not [q for q in Telling(graph.names, graph.types, path).questions() if "wrote wrote" in q or "wrote wr" in q]
    vague = graph_of(
        [("Ann Lee", "claimed", "gold"), ("gold", "represented", "Cup")], {"gold": "", "Cup": "", "Ann Lee": ""}
    )
    assert Telling(
        vague.names, vague.types, path_of(vague, "Ann Lee", "claimed", "gold", "represented", "Cup")
    ).is_vague
    with pytest.raises(ValueError, match="has no wording"):
        Telling(["A", "B"], ["", ""], GraphPath((0, 1), (Step(0, 1, 0, True),)))


# ---------------------------------------------------------------------------------------------------------- replies
@each(
    "reply, questions",
    [
        ('{"questions": ["Who is it?", "Who is it?", "- Where?"]}', ["Who is it?", "Where?"]),
        ('<think>{"questions": ["no"]}</think>```json\n{"questions": ["Who?",]}\n```', ["Who?"]),
        ('Here: {"other": 1} {"questions": ["Who?"]}', ["Who?"]),
        ('{"questions": ["Who?", "Wh', ["Who?", "Wh"]),
        ('{"questions": []}', None),
        ('{"questions": "Who?"}', None),
        ('{"questions": [1, 2]}', None),
        ('["Who?"]', None),
        ("", None),
        ("{" * 3000, None),
    ],
)
def test_replies_are_read_or_malformed(reply, questions):
    if questions is None:
        with pytest.raises(MalformedError):
            parse_questions(reply)
    else:
        assert parse_questions(reply) == questions
