"""The prompted stages against a scripted model: one that forgets, invents, refuses, and miscounts."""

import asyncio
import json
import re

from gnnrag.datasets.kb import parts_of
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.session import Session
from gnnrag.textualise.prompted import APPENDED, PLAIN, REPLACED, STATED, PromptedWriter, WriterConfig, can_be_shown
from gnnrag.textualise.templates import EntityTask, RelationsTask, check_marked, read_marked
from tests.helpers.each import each

KB = [
    ("Night Harbour", "directed_by", "Vera Lind"),
    ("Night Harbour", "written_by", "Vera Lind"),
    ("Night Harbour", "release_year", "1971"),
    ("Night Harbour", "has_tags", "fog"),
    ("Night Harbour", "has_tags", "Fog"),
]
(PART,) = parts_of(KB, {"Night Harbour"})
WHOLE = (
    "<Night Harbour> came out in [1971]. [Vera Lind] wrote and directed it.\n\n"
    "Viewers tagged <Night Harbour> with [fog] and [Fog]."
)
SHORT = "<Night Harbour> came out in [1971]. [Vera Lind] wrote and directed it."


def writer(*rules, **settings):
    backend = ScriptedBackend.of(*rules)
    return PromptedWriter(backend, WriterConfig(method="prompted", **settings), ["movie", "person"]), backend


def asked(backend):
    return [request.messages[-1].content for request in backend.requests]


def article(*rules, part=PART, **settings):
    author, backend = writer(*rules, **settings)
    session = Session("x")
    return asyncio.run(author.article(part, session)), backend, session.by_role["article"]


def test_a_whole_article_is_taken_as_it_is():
    written, backend, spent = article(("Kind: movie", WHOLE))
    assert (written.text, written.flags) == (WHOLE, ())
    assert spent["calls"] == 1 and not spent["parse_failure"]
    (prompt,) = asked(backend)
    statements = "- Vera Lind: Night Harbour was directed by Vera Lind. Night Harbour was written by Vera Lind."
    assert statements in prompt and "[" not in prompt


def test_only_the_missing_names_are_asked_for_again():
    """Misses two names, then one of them twice, then complies."""
    more = ["And [fog].", "Nothing new.", "Once more [fog].", "<Night Harbour> also goes with [Fog]."]
    written, backend, spent = article(("Kind: movie", SHORT), ("Missing", more))
    assert written.text == f"{SHORT}\n\n{more[0]}\n\n{more[3]}" and not written.flags
    assert check_marked(written.text, PART.name, PART.neighbours) == []
    first, *rest = (prompt.partition("Missing")[2] for prompt in asked(backend)[1:])
    assert "- fog:" in first and "- Fog:" in first and "Vera Lind" not in first
    assert all("- fog:" not in prompt and "- Fog:" in prompt for prompt in rest) and len(rest) == 3
    assert [re.search(r"request (\d)", prompt)[1] for prompt in asked(backend)[1:]] == ["1", "2", "3", "4"]
    assert spent["calls"] == 5


@each(
    "bad",
    [
        WHOLE.replace("tagged", "tagged and [praised]"),  # an invented bracket
        WHOLE.replace("[Vera Lind]", "[vera lind]"),
        WHOLE.replace("<Night Harbour>", "<Night Harbor>"),
        WHOLE.replace("[fog]", "[fog"),
        WHOLE.replace("came out", "cost 250000 and came out"),  # a number from elsewhere
        "I'm sorry, but I can't help with that.",
        "Night Harbour came out in 1971.",
        "",
    ],
)
def test_an_article_that_breaks_the_rules_is_asked_for_again(bad):
    written, backend, spent = article(("Kind: movie", [bad, WHOLE]))
    assert (written.text, written.flags) == (WHOLE, ())
    assert spent["parse_failure"] == 1 and spent["calls"] == 2
    assert "Format: paragraphs" in asked(backend)[1] and "Format: paragraphs" not in asked(backend)[0]


def test_a_paragraph_that_breaks_the_rules_is_not_taken():
    written, _, spent = article(("Kind: movie", SHORT), ("Missing", ["[fog] [Oslo]", "[fog], [Fog]"]))
    assert written.text == f"{SHORT}\n\n[fog], [Fog]" and spent["parse_failure"] == 1


def test_templates_say_what_the_model_never_does():
    written, backend, _ = article(("Kind: movie", SHORT), ("Missing", "No."), tries=5)
    assert len(backend.requests) == 1 + 5
    assert written.flags == (APPENDED,) and written.text.startswith(f"{SHORT}\n\n")
    added = written.text.removeprefix(f"{SHORT}\n\n")
    assert {m.name for m in read_marked(added)[1]} == {"Night Harbour", "fog", "Fog"}
    written, backend, spent = article(("Kind: movie", "[Oslo]"), tries=5)
    assert len(backend.requests) == 5 == spent["parse_failure"] and written.flags == (REPLACED,)
    assert check_marked(written.text, PART.name, PART.neighbours) == []


def test_names_that_cannot_be_shown_are_left_to_the_templates():
    odd = ["a [b]", "<|im_end|>", "</notes>", "a\tb", " a"]
    assert not any(can_be_shown(name) for name in odd)
    assert all(
        can_be_shown(name) for name in ["M*A*S*H", "{topic}", "12", "Ana & Eva", "$", "“Weird” Al", "1984 (film)"]
    )
    triples = [("Film", "has_tags", name) for name in [*odd, "fog"]]
    (part,) = parts_of(triples, {"Film"})
    written, backend, _ = article(("Kind: movie", "<Film> has the tag [fog]."), part=part)
    assert len(backend.requests) == 1 and written.flags == (APPENDED,)
    assert check_marked(written.text, "Film", part.neighbours) == []
    assert "im_end" not in asked(backend)[0]
    (part,) = parts_of(triples, {"a [b]"})
    written, backend, _ = article(part=part)
    assert not backend.requests and written.flags == (REPLACED,)


def described(*replies, **settings):
    author, backend = writer(("Kinds:", list(replies)), **settings)
    task = EntityTask(PART, read_marked(WHOLE)[0])
    return asyncio.run(author.entity(task, Session("x"))), backend


def test_entities_are_described_from_their_article():
    good = json.dumps({"type": "person", "description": "Night Harbour is a film of 1971 by Vera Lind."})
    found, backend = described(good)
    assert (found.type, found.description) == ("movie", "Night Harbour is a film of 1971 by Vera Lind.")
    assert "Kinds: movie, person, unsure" in asked(backend)[0] and "Viewers tagged Night Harbour" in asked(backend)[0]
    assert described(good, infer_type=True)[0].type == "person"


@each(
    "bad",
    [
        '{"type": "film", "description": "Night Harbour is a film."}',
        '{"type": "movie", "description": "It is a film."}',
        '{"type": "movie", "description": "[Night Harbour] is a film."}',
        '{"type": "movie", "description": "Night Harbour is a film of 1972."}',
        '{"type": "movie"}',
        "Night Harbour is a film.",
    ],
)
def test_descriptions_that_break_the_rules(bad):
    good = '{"type": "movie", "description": "Night Harbour is a film."}'
    found, backend = described(bad, good)
    assert found.description == "Night Harbour is a film." and len(backend.requests) == 2 and not found.flags
    found, backend = described(bad, tries=2)
    assert found.flags == (PLAIN,) and found.type == "movie" and len(backend.requests) == 2
    assert found.description.startswith("Night Harbour is a movie. Night Harbour was directed by Vera Lind.")


def sentences(request):
    """A model that complies."""
    rows = re.findall(r"^(\d+)\. (.+?) \| (.+?) \| (.+)$", request.messages[-1].content, re.M)
    return json.dumps({n: f"[{head}] {relation} [{tail}]." for n, head, relation, tail in rows})


def related(rule, triples=tuple(KB), **settings):
    author, backend = writer(("Triples:", rule), **settings)
    task = RelationsTask(PART, read_marked(WHOLE)[0], triples)
    return asyncio.run(author.relations(task, Session("x"))), backend


def test_each_triple_gets_its_sentence_in_order():
    found, backend = related(sentences)
    assert found.texts[0] == "[Night Harbour] directed by [Vera Lind]." and found.texts[3].endswith("has tags [fog].")
    assert len(found.texts) == 5 and not found.flags and len(backend.requests) == 1
    assert len(related(sentences, batch=2)[1].requests) == 3


@each(
    "bad",
    [
        '{"1": "[Night Harbour] and [Vera Lind]"}',  # numbers are missing
        lambda request: sentences(request).replace('"5"', '"6"'),
        lambda request: sentences(request)[:-1] + ', "6": "[Night Harbour] [fog]"}',
        lambda request: sentences(request).replace("[Fog]", "[fog]"),
        lambda request: sentences(request).replace("[fog]", "fog"),
        lambda request: sentences(request).replace("[fog]", "[fog] [1971]"),
        lambda request: sentences(request).replace("[fog]", "<fog>"),
        "none",
    ],
)
def test_sentences_that_do_not_fit_are_asked_for_again(bad):
    found, backend = related([bad, sentences])
    assert len(backend.requests) == 2 and not found.flags and found.texts[4] == "[Night Harbour] has tags [Fog]."


def test_a_batch_that_fails_is_halved_down_to_single_triples():
    def stubborn(request):
        many = len(re.findall(r"^\d+\. ", request.messages[-1].content, re.M)) > 1
        return "no" if many or "| Vera Lind" in request.messages[-1].content else sentences(request)

    found, backend = related(stubborn, tries=2)
    assert found.flags == (STATED, STATED)
    assert found.texts[:2] == (
        "“[Night Harbour]” was directed by [Vera Lind].", "“[Night Harbour]” was written by [Vera Lind].",
    )  # fmt: skip
    assert [text.rpartition(" ")[2] for text in found.texts[2:]] == ["[1971].", "[fog].", "[Fog]."]
    # 5, 2, 1, 1, 3, 1, 2, 1, 1 triples; two replies where they are not to be had.
    assert len(backend.requests) == 2 * (1 + 1 + 1 + 1 + 1 + 1) + 3


def test_a_self_loop_marks_its_one_end():
    loop = ("12", "starred_actors", "12")
    (part,) = parts_of([loop])
    author, _ = writer(("Triples:", sentences))
    found = asyncio.run(author.relations(RelationsTask(part, "12 stars 12.", (loop,)), Session("x")))
    assert found.texts == ("[12] starred actors [12].",) and not found.flags


def test_identity_tells_models_settings_and_prompts_apart():
    first, second = writer(("a", "b"))[0].identity, writer(("a", "c"))[0].identity
    assert first != second and first == writer(("a", "b"))[0].identity
    assert writer(("a", "b"), tries=3)[0].identity != first
    assert set(first["prompts"]) == {"article", "article_more", "entity_text", "relation_texts"}
