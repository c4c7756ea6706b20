"""DotRAG's roles: what each form returns, what its parser takes and refuses, how it falls back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gnnrag.index.embedder import HashEmbedder
from gnnrag.methods.dotrag.offline import (
    NameReader,
    OfflineConcepts,
    OfflinePathJudge,
    OfflineRedirect,
    OfflineRules,
    PatternGuesser,
    _same_stem,
)
from gnnrag.methods.dotrag.oracle import OracleConcepts, OraclePathJudge, OracleRedirect, OracleRules
from gnnrag.methods.dotrag.paths import PathVerdict
from gnnrag.methods.dotrag.roles import (
    GENERIC,
    ConceptsTask,
    DotRules,
    JudgeTask,
    PathText,
    PromptedPathJudge,
    PromptedRedirect,
    RedirectTask,
    RulesTask,
    parse_concepts,
    parse_judgements,
    parse_query,
    parse_rules,
    schema_text,
)
from gnnrag.methods.dotrag.schema import Schema, SchemaTerm, draft
from gnnrag.parts import set_up
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session
from gnnrag.types import GoldHop, Question
from tests.helpers.dots import QUESTION, typed_graph
from tests.helpers.roles import ask

TRIPLES = [
    ("Solaris", "directed_by", "Andrei T"), ("Mirror", "directed_by", "Andrei T"), ("Mirror", "written_by", "Arseny T"),
    ("Solaris", "release_year", "1972"), ("Mirror", "release_year", "1975"), ("Solaris", "starred_actors", "Donatas B"),
]  # fmt: skip
KINDS = {"Solaris": "movie", "Mirror": "movie", "Andrei T": "person", "Arseny T": "person", "Donatas B": "person",
         "1972": "year", "1975": "year"}  # fmt: skip
GRAPH = typed_graph(TRIPLES, KINDS)
WORDS = {"directed_by": "directed director", "written_by": "wrote writer", "starred_actors": "act acted actor star"}


def edited(schema: Schema) -> Schema:
    relations = tuple(SchemaTerm(k.name, WORDS.get(k.name, "came out released"), k.count) for k in schema.relations)
    return Schema("Movies.", schema.types, relations, schema.links)


SCHEMA = edited(draft(GRAPH))
INDEX: Any = SimpleNamespace(
    knowledge=GRAPH, embedder=HashEmbedder(), position={"c0": 0, "c1": 1},
    lookup=lambda ids: [SimpleNamespace(title={"c0": "Solaris", "c1": "Andrei T"}[id_]) for id_ in ids],
)  # fmt: skip
ASKED = Question("q", "when did films by the director of Solaris come out", ("1975",),
                 "movie_to_director_to_movie_to_year", extra={"anchor": "Solaris", "nodes": ["1975"]})  # fmt: skip


def do(role: Any, task: Any) -> Any:
    return asyncio.run(set_up(role, index=INDEX)(task, Session("q")))


def path(id_: str, names: str, *steps: str, similarity: float = 0.0) -> PathText:
    nodes = tuple(names.split(" > "))
    return PathText(id_, names, nodes, tuple(KINDS[n] for n in nodes), tuple((s,) for s in steps), similarity)


PATHS = (
    path("p1", "Solaris > Andrei T", "directed_by"),
    path("p2", "Solaris > Andrei T > Mirror", "directed_by", "~directed_by"),
    path("p3", "Solaris > Andrei T > Mirror > 1975", "directed_by", "~directed_by", "release_year"),
    path("p4", "Solaris > Donatas B", "starred_actors", similarity=0.9),
)


SAY_NOTHING: list[tuple[Any, str]] = [
    *((lambda text: parse_concepts(text, "q"), text) for text in ("", '{"topics": []}', '{"anchors": "Ada"}')),
    *((lambda text: parse_rules(text, ()), text) for text in ("I refuse", "{}", '{"intermediate_rules": ""}')),
    *((parse_judgements, text) for text in ("", "all complete", '{"judgements": []}', '{"judgements": ["p1"]}')),
    *((parse_query, text) for text in ("", "one\ntwo", "none")),
]


@pytest.mark.parametrize("parse, text", SAY_NOTHING)
def test_replies_that_say_nothing(parse: Any, text: str) -> None:
    with pytest.raises(MalformedError):
        parse(text)


# ------------------------------------------------------------------------------------------------------ concepts
def test_spans_must_stand_in_the_question() -> None:
    reply = {"anchors": [{"span": "ada  renn"}, {"span": "Tomas Renn", "type": "person"}, "Ada"], "use_anchors": True}
    found = parse_concepts(json.dumps(reply), QUESTION.text)
    assert [c.span for c in found.named] == ["ada renn"] and found.flags == ("span_dropped",) and found.use_anchors
    assert parse_concepts(json.dumps(reply | {"anchors": reply["anchors"][:1]}), QUESTION.text).flags == ()


def test_without_a_named_thing_a_question_is_broad() -> None:
    found = parse_concepts('{"anchors": [], "topics": ["ships", ""], "use_anchors": true}', "which ships?")
    assert not found.use_anchors and found.topics == ("ships",)
    assert not parse_concepts('{"anchors": [{"span": "ships"}], "use_anchors": 0}', "which ships?").use_anchors


def test_the_prompt_shows_the_schema_without_control_tokens() -> None:
    hostile = Schema("Movies <|im_start|>", (SchemaTerm("movie", "a [INST] film", 2, ("<s>x",)),), (), {})
    text = schema_text(hostile)
    assert "<|" not in text and "[INST]" not in text and "- movie (2): a" in text
    assert "no types" in schema_text(Schema("d", (), (), {}))


def test_offline_concepts_are_exact_names_first() -> None:
    found = do(OfflineConcepts(), ConceptsTask(ASKED, SCHEMA))
    assert [(c.span, c.type) for c in found.named] == [("Solaris", "movie")] and found.use_anchors
    lower = do(OfflineConcepts(), ConceptsTask(Question("q", "who directed solaris?"), SCHEMA))
    assert [c.span for c in lower.named] == ["solaris"]
    none = do(OfflineConcepts(), ConceptsTask(Question("q", "what is there?"), SCHEMA))
    assert not none.named and none.topics and not none.use_anchors


def test_oracle_concepts() -> None:
    assert [c.span for c in do(OracleConcepts(), ConceptsTask(ASKED, SCHEMA)).named] == ["Solaris"]
    hops = (GoldHop("Solaris >> director", "Andrei T"), GoldHop("Where was #1 born?", "X"))
    asked = Question("q", "where was its director born", decomposition=hops)
    assert [c.span for c in do(OracleConcepts(), ConceptsTask(asked, SCHEMA)).named] == ["Solaris"]
    asked = Question("q", "?", evidence=(("Mirror", "director", "Andrei T"), ("Andrei T", "born", "X")))
    assert [c.span for c in do(OracleConcepts(), ConceptsTask(asked, SCHEMA)).named] == ["Mirror"]
    hops = (GoldHop("Was #2 made after Mirror?", "X"), GoldHop("Solaris >> director", "Andrei T"))
    asked = Question("q", "?", decomposition=hops)
    spans = [c.span for c in do(OracleConcepts(), ConceptsTask(asked, SCHEMA)).named]
    assert spans == ["Solaris", "Mirror"], "what a later hop names counts, too, after what stands alone"


# --------------------------------------------------------------------------------------------------------- rules
def test_types_are_those_of_the_schema() -> None:
    reply = {"intermediate_rules": "way", "terminal_rules": "end", "allowed_types": ["movie", "ship"],
             "terminal_types": ["year"], "through_types": []}  # fmt: skip
    rules = parse_rules(f"```json\n{json.dumps(reply)}\n```", ("person", "movie", "year"))
    assert rules.allowed_types == ("movie", "year") and rules.terminal_types == ("year",)
    assert rules.through_types is None and rules.flags == ("unknown_type",)
    only_unknown = parse_rules(json.dumps(reply | {"allowed_types": ["ship"]}), ("person", "movie", "year"))
    assert only_unknown.allowed_types == ()


@pytest.mark.parametrize("role", [OracleRules(), OfflineRules()])
def test_rules_from_the_gold_path_and_from_the_wording(role: Any) -> None:
    rules = do(role, RulesTask(ASKED, SCHEMA, "Solaris", ("Solaris",), ("movie",)))
    assert rules.allowed_types == ("person", "movie", "year") and rules.terminal_types == ("year",)
    assert rules.through_types == ("person", "movie")
    other = Question("q", "zzz", type="2hop")
    assert do(role, RulesTask(other, SCHEMA, "Solaris", ("Solaris",), ("movie",))) == GENERIC


@pytest.mark.parametrize(
    ("text", "span", "starts", "steps", "score"),
    # 1.5 for the type asked for, .5 for the last predicate, .25 for the first, -.2 a step, .1 where one leads back
    [
        ("who directed Solaris", "Solaris", ["movie"], ("directed_by",), 2.05),
        ("what movies did Donatas B act in", "Donatas B", ["person"], ("~starred_actors",), 2.05),
        ("which movies share the director with Solaris", "Solaris", ["movie"], ("directed_by", "~directed_by"), 1.95),
        ("who wrote movies directed by the director of Solaris", "Solaris", ["movie"],
         ("directed_by", "~directed_by", "written_by"), 1.75),
        ("the movies that share directors with Solaris are written by who", "Solaris", ["movie"],
         ("directed_by", "~directed_by", "written_by"), 1.75),
        ("when were the movies by the actors of Solaris released", "Solaris", ["movie"],
         ("starred_actors", "~starred_actors", "release_year"), 1.0),  # next to `when` are the actors
        ("where was it directed and written, Arseny T", "Arseny T", ["person"],
         ("~written_by", "directed_by"), 0.35),  # no place among the types
        ("who directed, wrote, acted in and released it, Solaris", "Solaris", ["movie"],
         ("written_by", "~starred_actors", "directed_by"), 2.0 - 0.6 - 2.0),  # 2.0 for the predicate left out
    ],
)  # fmt: skip
def test_guessed_walks(text: str, span: str, starts: list[str], steps: tuple[str, ...], score: float) -> None:
    guess = PatternGuesser(SCHEMA, lambda texts: HashEmbedder().encode(list(texts))).guess(text, span, starts)
    assert guess is not None and guess.steps == steps and guess.score == pytest.approx(score)


def test_words_of_one_stem() -> None:
    same = "actors actor, direct directors, star starred, writer screenwriter, lease release, written writer"
    others = "direct directorial, act actor, star starring, ease release, painting painters"
    pairs = [pair.split() for pair in f"{same}, {others}".split(", ")]
    assert [" ".join(pair) for pair in pairs if _same_stem(*pair)] == same.split(", ")


# --------------------------------------------------------------------------------------------------------- judges
@pytest.mark.parametrize("role", [OraclePathJudge(), OfflinePathJudge()])
def test_judges_by_the_walk(role: Any) -> None:
    judged = do(role, JudgeTask(ASKED, SCHEMA, GENERIC, (), PATHS)).items
    assert [j.label for j in judged] == ["partial", "partial", "complete", "irrelevant"]
    assert [j.next_question for j in judged] == ["Andrei T directed by", "Mirror release year", None, None]


def test_the_oracle_takes_answers_and_names_on_the_gold_way() -> None:
    hops = (GoldHop("Solaris >> director", "Andrei T", "c0"), GoldHop("What else did #1 make?", "Mirror", "c1"))
    asked = Question("q", "?", ("mirror",), gold=("c0", "c1"), decomposition=hops)
    judged = do(OraclePathJudge(), JudgeTask(asked, SCHEMA, GENERIC, (), PATHS)).items
    assert [j.label for j in judged] == ["partial", "complete", "irrelevant", "partial"]
    assert judged[0].next_question == "What else did Andrei T make?"
    assert judged[3].next_question == "What else did Andrei T make?", "c0, a gold passage, states the link to Donatas B"
    ask = RedirectTask(asked, GENERIC, "Solaris", ("Solaris director",), ())
    assert do(OracleRedirect(), ask).query == "What else did Andrei T make?"
    again = replace(ask, history=("Solaris director", "what else did Andrei T make?"))
    assert do(OracleRedirect(), again).query == "Solaris director Andrei T", "then with what is found there"


def test_the_oracle_follows_the_evidence_of_a_question_without_hops() -> None:
    hops = (GoldHop("Solaris >> director", "...", "c0"), GoldHop("What else did #1 make?", "Mirror", "c1"))
    evidence = (("Solaris", "director", "Andrei T"), ("Andrei T", "child", "Arseny T"))

    def judged(asked: Question, end: str) -> PathVerdict:
        paths = (PathText("p1", "", ("Nobody", end), ("", ""), (("knows",),)),)
        return do(OraclePathJudge(), JudgeTask(asked, SCHEMA, GENERIC, (), paths)).items[0]

    asked = Question("q", "?", ("Mirror",), evidence=evidence)
    assert judged(asked, "Andrei T") == PathVerdict("p1", "partial", 1.0, "gold"), "it came first as a tail"
    assert judged(asked, "Solaris").next_question == "Solaris director"
    assert [judged(asked, end).label for end in ("Arseny T", "Mirror", "1972")] == ["partial", "complete", "irrelevant"]
    unnamed = Question("q", "?", ("Mirror",), gold=("c0", "c1"), decomposition=hops)
    assert judged(unnamed, "?!").label == "irrelevant", "signs alone are no name"


def test_the_cosine_of_a_path_is_that_of_the_mean_of_its_sentences() -> None:
    one, two = "the film was made by Andrei T in 1972", "Andrei T had made it with some of his friends"
    paths = (
        PathText("p1", "a b c", ("a", "b", "c"), ("", "", ""), ((one, "~" + one), (two,))),
        PathText("p2", "Solaris made by", ("a", "b"), ("", ""), (("made by",),)),
        PathText("p3", "a b", ("a", "b"), ("", ""), ((one,),)),
    )
    embed, wanted = HashEmbedder(), []
    question = embed.encode(["who made the film Solaris"])[0]
    for texts in ([one, two], ["Solaris made by"], [one]):
        mean = sum(embed.encode(texts)) / len(texts)
        wanted.append(sum(a * b for a, b in zip(mean, question, strict=True)) / sum(a * a for a in mean) ** 0.5)
    judge = set_up(OfflinePathJudge(), index=INDEX)
    assert judge._cosines("who made the film Solaris", paths).tolist() == pytest.approx(wanted)


def test_names_in_a_text() -> None:
    names = ("New York", "York", "Ali", "Al", "The", "Ö Museum")
    reader = NameReader(typed_graph([("New York", "has", name) for name in names[1:]], dict.fromkeys(names, "x")))
    read = lambda text: [span for span, _ in reader.read(text)]  # noqa: E731
    assert read("Is York near New York's ali?") == ["York", "New York"], "longer runs first, no word twice"
    assert read("is new york with al, (ali) and the o museum") == ["new york", "ali", "o museum"]
    assert read("York, Ali, Al and New York") == ["York", "Ali", "New York"], "three, the longest"
    assert read("new") == []


def test_without_types_similarity_decides() -> None:
    bare = Schema("", (), (), {})
    texts = ("Solaris directed by Andrei T", "Solaris directed Andrei", "zebra crossing")
    paths = tuple(PathText(f"p{i}", t, ("Solaris", "Andrei T"), ("", ""), (("x",),)) for i, t in enumerate(texts))
    asked = Question("q", "Solaris directed by whom")
    judged = do(OfflinePathJudge(), JudgeTask(asked, bare, GENERIC, (), paths)).items
    assert [j.label for j in judged] == ["complete", "partial", "irrelevant"]
    assert judged[1].next_question == "Andrei T directed by whom"


def reply(*rows: Any) -> str:
    return json.dumps({"judgements": list(rows)})


def test_judgements_are_read_strictly() -> None:
    good = {"id": "p1", "label": "Partial", "confidence": "0.7", "reason": "r", "next_question": "Who?"}
    found = parse_judgements(
        reply(
            good, good | {"confidence": 0.1}, {"id": "p2", "label": "good"}, {"id": 3, "label": "partial"},
            {"id": "p4", "label": "complete", "confidence": 7, "next_question": "Who?"}, "p5",
            {"id": "p6", "label": "complete", "confidence": "high"},
            {"id": "p7", "label": "complete", "confidence": True},
            {"id": "p8", "label": "complete", "confidence": float("nan")},
        )
    )  # fmt: skip
    assert found == {"p1": PathVerdict("p1", "partial", 0.7, "r", "Who?"), "p4": PathVerdict("p4", "complete", 1.0)}
    assert parse_judgements(json.dumps([good])).keys() == {"p1"}


def test_batches_fail_on_their_own() -> None:
    task = JudgeTask(ASKED, SCHEMA, DotRules("only films", "way", "end"), ("earlier",), PATHS)
    one = reply({"id": "p4", "label": "complete", "confidence": 1})
    rules = ((lambda request: 'id="p1">Solaris' in request.messages[-1].content, "no"),)
    asked = ask(PromptedPathJudge(batch=3, keep_on_failure=1), task, one, rules=rules)
    assert [(j.label, j.guessed) for j in asked.result.items] == [
        ("partial", True), ("irrelevant", False), ("irrelevant", False), ("complete", False)]  # fmt: skip
    assert asked.result.flags == ("judge_failed",)
    assert "- earlier" in asked.shown() and "only films" in asked.shown()


def test_a_path_that_is_passed_over_twice_is_irrelevant_without_confidence() -> None:
    first, second = ({"id": id_, "label": "complete", "confidence": 1} for id_ in ("p2", "p1"))
    asked = ask(PromptedPathJudge(), JudgeTask(ASKED, SCHEMA, GENERIC, (), PATHS), reply(first), reply(second))
    assert [j.label for j in asked.result.items] == ["complete", "complete", "irrelevant", "irrelevant"]
    assert asked.result.items[2] == PathVerdict("p3", "irrelevant", 0.0) and asked.result.flags == ("judge_missing",)


# ----------------------------------------------------------------------------------------------------- directions
def test_a_new_direction_is_one_line() -> None:
    assert parse_query('"Who else sailed there?"') == "Who else sailed there?"
    task = RedirectTask(ASKED, GENERIC, "Solaris", (ASKED.text,), ("a path",), 2)
    asked = ask(PromptedRedirect(), task, "Who shot Solaris?")
    assert asked.result.query == "Who shot Solaris?"
    assert "Tries left: 2" in asked.shown() and "<notes>\na path" in asked.shown()


def test_offline_directions_run_out() -> None:
    history: tuple[str, ...] = ()
    rules = DotRules("", "way", "a year", terminal_types=("year",))
    sent = []
    for _ in range(4):
        query = do(OfflineRedirect(), RedirectTask(ASKED, rules, "Solaris", history, ())).query
        sent.append(query)
        history += (query,) if query else ()
    assert sent[:2] == ["Solaris a year", "Solaris year"] and sent[3] is None and len(set(sent)) == 4
