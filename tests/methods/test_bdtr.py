"""Call counts of specs/bdtr.md 11 and the acceptance tests of its section 19."""

from __future__ import annotations

from typing import Any

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import LLMError
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.bdtr import BDTR
from gnnrag.parts import set_up
from gnnrag.roles.base import Chain, Thoughts, Verdict
from gnnrag.roles.chain import PromptedChain
from gnnrag.roles.reader import PromptedReader
from gnnrag.roles.thoughts import PromptedThoughts
from gnnrag.roles.verifier import PromptedVerifier
from gnnrag.session import Session
from gnnrag.types import Prediction
from tests.helpers.parts import ToyIndex, ToyRetriever, answer_one, broken, scripted_roles

TABLE = {
    "Q": {"a": 0.9, "b": 0.8, "c": 0.5, "z": 0.0},
    "fast1": {"b": 1.0, "d": 0.6, "z": 0.0},
    "slow1": {"e": 1.0, "c": 0.7, "z": 0.0},
    "fast2": {"f": 1.0, "z": 0.0},
    "slow2": {"g": 1.0, "a": 0.2, "z": 0.0},
    "fast3": {"h": 1.0, "z": 0.0},
    "slow3": {"i": 1.0, "z": 0.0},
}
ROUNDS = [Thoughts(f"fast{i}", f"slow{i}") for i in (1, 2, 3)]
# What each prompt is known by, and a good reply to it.
REPLIES = [
    ("You check which passages", '{"selected": [3]}'),
    ("You lay out how", "A - made - B [1]\nBridge entities: B"),
    ("careful reader", "Thought: [1] says so.\nAnswer: yes"),
    ("one more follow-up question", [f"Slow Thought: slow{i}" for i in (1, 2, 3)]),
    ("exactly two follow-up questions", [f"Fast Thought: fast{i}\nSlow Thought: slow{i}" for i in (1, 2, 3)]),
    (".", [f"Fast Thought: fast{i}" for i in (1, 2, 3)]),
]


def run(
    roles: dict[str, Any] | None = None, retriever: Any = None, **settings: Any
) -> tuple[Prediction, Session, dict[str, Any]]:
    roles = roles or scripted_roles(ROUNDS)
    method = set_up(BDTR(**settings), index=ToyIndex(), roles=roles)
    prediction, session = answer_one(method, retriever or ToyRetriever(TABLE), roles["reader"])
    return prediction, session, roles


def prompted(llm: ScriptedBackend, mode: Any = "joint") -> dict[str, Any]:
    return {
        "thoughts": set_up(PromptedThoughts(mode=mode), backend=llm),
        "chain": set_up(PromptedChain(), backend=llm),
        "verifier": set_up(PromptedVerifier(), backend=llm),
        "reader": set_up(PromptedReader(), backend=llm),
    }


def calls(prediction: Prediction) -> dict[str, int]:
    return {role: row.get("calls", 0) for role, row in prediction.usage["roles"].items()}


# ------------------------------------------------------------------------------------------- 19.2, section 11
@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "mode, chain_from, thought_calls, chain_calls",
    [
        ("joint", "final_pool", 1, 1),
        ("separate", "final_pool", 2, 1),
        ("joint", "last_round_joint", 1, 0),
        ("separate", "last_round_joint", 2, 0),
    ],
)
def test_call_counts(rounds: int, mode: str, chain_from: str, thought_calls: int, chain_calls: int) -> None:
    def with_chain(request: Any) -> bool:
        return 'line "Chain:"' in request.messages[0].content and "one more" not in request.messages[0].content

    last = f"Fast Thought: fast{rounds}\nSlow Thought: slow{rounds}\nChain:\nA - made - B [1]"
    slow = [f"Slow Thought: slow{i}\nChain:\nA - made - B [1]" for i in (1, 2, 3)]
    replies = [(m, slow if "one more" in m and chain_from == "last_round_joint" else r) for m, r in REPLIES]
    llm = ScriptedBackend.of((with_chain, last), *replies)
    roles = prompted(llm, mode)
    prediction, _, _ = run(roles, max_rounds=rounds, chain_from=chain_from)
    if rounds == 0:
        chain_calls = 1  # no thought is there to fold the chain into
    assert prediction.error is None and prediction.answer == "yes"
    expected = {"thoughts": thought_calls * rounds, "chain": chain_calls, "verifier": 1, "reader": 1}
    assert calls(prediction) == {role: n for role, n in expected.items() if n}
    assert prediction.usage["llm_calls"] == len(llm.requests) == sum(expected.values())
    assert prediction.usage["retriever_calls"] == 1 + 2 * rounds
    assert prediction.rounds == rounds
    assert not prediction.usage["flags"]
    assert "A - made - B [1]" in next(r.text for r in llm.requests if "You check which passages" in r.text)


def test_both_thoughts_of_a_round_are_one_batch() -> None:
    retriever = ToyRetriever(TABLE)
    run(retriever=retriever)
    assert retriever.batches == [1, 2, 2]
    assert retriever.asked == ["Q", "fast1", "slow1", "fast2", "slow2"]


# -------------------------------------------------------------------------------------------- what the roles see
def test_thoughts_see_the_pool_of_the_round_before_and_what_was_asked() -> None:
    _, _, roles = run()
    first, second = roles["thoughts"].tasks
    assert [p.id for p in first.passages] == ["a", "b", "c", "z"] and first.earlier == () and first.round == 1
    assert first.scores == pytest.approx((1.0, 0.8 / 0.9, 0.5 / 0.9, 0.0))
    assert [p.id for p in second.passages] == ["a", "b", "e", "c", "d"]
    assert second.earlier == ("fast1", "slow1") and second.round == 2
    assert not first.may_stop and not first.with_chain


def test_chain_and_verifier_see_the_final_pool() -> None:
    _, _, roles = run(chain_passages=3, verifier_passages=6)
    (chain,) = roles["chain"].tasks
    assert [p.id for p in chain.passages] == ["a", "b", "e"]
    assert chain.thoughts == ("fast1", "slow1", "fast2", "slow2")
    (verifier,) = roles["verifier"].tasks
    assert [p.id for p in verifier.passages] == ["a", "b", "e", "f", "g", "c"]
    assert verifier.chain.text == "a - b - c" and len(verifier.scores) == 6


def test_the_reader_sees_the_kept_passages_and_no_chain() -> None:
    prediction, _, roles = run(scripted_roles(ROUNDS, verifier=[Verdict(("d",))]))
    (task,) = roles["reader"].tasks
    assert [p.id for p in task.passages] == list(prediction.context) == ["d", "a", "b", "e", "f"]
    assert task.notes == "", "the chain may hold answers, and `single` has none"
    assert prediction.ranking == ("d", "a", "b", "e", "f", "g", "c", "z")


def test_the_last_thoughts_write_the_chain() -> None:
    thoughts = [ROUNDS[0], Thoughts("fast2", "slow2", chain="x - y")]
    prediction, _, roles = run(scripted_roles(thoughts), chain_from="last_round_joint")
    assert [t.with_chain for t in roles["thoughts"].tasks] == [False, True]
    assert not roles["chain"].tasks and roles["verifier"].tasks[0].chain.text == "x - y"
    assert prediction.usage["llm_calls"] == 4


# ----------------------------------------------------------------------------------------------- 19.3, ablations
def test_without_rounds_and_selection_it_is_one_retrieval_and_the_cut() -> None:
    prediction, _, roles = run(max_rounds=0)
    assert prediction.ranking == ("a", "b", "c", "z") == prediction.context
    assert prediction.usage["retriever_calls"] == 1 and not roles["thoughts"].tasks
    wide = {"Q": {f"d{i:02}": float(60 - i) for i in range(60)}}
    prediction, _, _ = run(retriever=ToyRetriever(wide), max_rounds=0, max_final=None)
    assert prediction.context == tuple(f"d{i:02}" for i in range(11)), "linear scores: 11 of 50"


def test_without_bgec_the_reader_sees_the_head_of_the_pool() -> None:
    prediction, _, roles = run(use_bgec=False, floor=3)
    assert prediction.context == ("a", "b", "e") and len(prediction.ranking) == 8
    assert not roles["chain"].tasks and not roles["verifier"].tasks and roles["reader"].tasks[0].notes == ""


@pytest.mark.parametrize("kind, asked", [("fast", ["Q", "fast1", "fast2"]), ("slow", ["Q", "slow1", "slow2"])])
def test_one_thought_alone(kind: str, asked: list[str]) -> None:
    retriever = ToyRetriever(TABLE)
    prediction, session, _ = run(retriever=retriever, thoughts=kind)
    assert retriever.asked == asked and prediction.usage["retriever_calls"] == 3
    assert [e["origin"] for e in session.events if e["event"] == "query"] == ["question", kind, kind]


def test_query_weights() -> None:
    prediction, _, _ = run(use_bgec=False, query_weights=[1.0, 0.95, 0.9])
    # a 1; fast: b, f .95; slow: e, g .9
    assert prediction.ranking[:5] == ("a", "b", "f", "e", "g")


# -------------------------------------------------------------------------------------------- 19.6, 19.7, 19.8


DEEP = {"Q": {f"n{i:02}": 1 / i for i in range(1, 61)}}


@pytest.mark.parametrize("promotion, kept", [("exempt", True), ("order_only", False), ("boost", True)])
def test_a_bridge_at_rank_40_that_the_verifier_selects(promotion: str, kept: bool) -> None:
    """`order_only`, the literal equation, moves n40 to the front and then cuts it; the floor saves the first only."""
    roles = scripted_roles(verifier=[Verdict(("n39", "n40"))])
    prediction, _, _ = run(roles, ToyRetriever(DEEP), max_rounds=0, promotion=promotion)
    assert prediction.ranking[:2] == ("n39", "n40")
    assert ("n40" in prediction.context) is kept and prediction.usage["llm_calls"] == 3


def test_what_the_verifier_did_not_see_it_cannot_select() -> None:
    llm = ScriptedBackend.of(("You check which passages", '{"selected": [2, 51, 0]}'), *REPLIES[1:])
    prediction, _, _ = run(prompted(llm), ToyRetriever(DEEP), max_rounds=0, verifier_passages=50)
    assert prediction.ranking[:2] == ("n02", "n01") and calls(prediction)["verifier"] == 1
    prediction, _, _ = run(prompted(llm), ToyRetriever(DEEP), max_rounds=0, verifier_passages=None)
    assert prediction.ranking[:3] == ("n02", "n52", "n01"), "a second window of the whole pool"
    assert calls(prediction)["verifier"] == 2


def test_a_verifier_that_selects_everything_is_capped() -> None:
    roles = scripted_roles(verifier=[lambda task: Verdict(tuple(p.id for p in reversed(task.passages)))])
    prediction, session, _ = run(roles, ToyRetriever(DEEP), max_rounds=0, max_promoted=3)
    assert prediction.ranking[:4] == ("n01", "n02", "n03", "n04"), "the best of the pool, not of the verifier's order"
    assert session.by_role["verifier"]["capped"] == 1
    roles = scripted_roles(verifier=[Verdict(("n20", "n10", "n30"))])
    prediction, _, _ = run(roles, ToyRetriever(DEEP), max_rounds=0, max_promoted=2)
    assert prediction.ranking[:4] == ("n10", "n20", "n01", "n02"), "what is beyond the cap stays in its place"


@pytest.mark.parametrize(
    "given, context",
    [
        # The first 50 are the 20 promoted and 1 to 30: the cut is .245, four reach it, and the floor adds one.
        ([], "n41 n01 n02 n03 n04"),
        (["method.promotion=exempt"], " ".join(f"n{i}" for i in (*range(41, 61), "01", "02", "03", "04"))),
        (["method.promotion=exempt", "method.max_promoted=1", "method.max_final=3"], "n41 n01 n02"),
    ],
)
def test_the_paper_by_the_letter(given: list[str], context: str) -> None:
    """Nothing is capped, what was promoted is cut; a setting that is given goes before the preset."""
    config = load_config(EvaluateConfig, None, ["method=bdtr", "method.preset=paper", "method.max_rounds=0", *given])
    roles = scripted_roles(verifier=[Verdict(tuple(f"n{i}" for i in range(41, 61)))])
    method = set_up(config.method.part, index=ToyIndex(), roles=roles)
    prediction, _ = answer_one(method, ToyRetriever(DEEP), roles["reader"])
    assert prediction.context == tuple(context.split())
    (task,) = roles["verifier"].tasks
    assert len(task.passages) == 60 and task.scores[:2] == (1.0, 0.5), "the whole pool with the scores of the search"


# ---------------------------------------------------------------------------------------- section 5, odd thoughts
def test_equal_and_repeated_thoughts_are_one_query_and_counted() -> None:
    retriever = ToyRetriever(TABLE)
    prediction, _, _ = run(scripted_roles([Thoughts("fast1", " FAST1 ")]), retriever, max_rounds=1)
    assert retriever.asked == ["Q", "fast1"]
    assert prediction.usage["flags"] == {"duplicate_query": 1} and prediction.usage["retriever_calls"] == 2
    prediction, _, _ = run(scripted_roles([Thoughts("q ", "slow1"), Thoughts("slow1", "fast2")]))
    assert prediction.usage["flags"] == {"duplicate_query": 2} and prediction.usage["retriever_calls"] == 5


def test_a_round_without_thoughts_is_skipped_and_the_next_one_goes_on() -> None:
    retriever = ToyRetriever(TABLE)
    roles = scripted_roles([Thoughts(flags=("thought_failed",)), ROUNDS[1]])
    prediction, session, _ = run(roles, retriever)
    assert retriever.asked == ["Q", "fast2", "slow2"]
    assert [t.round for t in roles["thoughts"].tasks] == [1, 2]
    assert session.by_role["thoughts"]["round_skipped"] == session.by_role["thoughts"]["thought_failed"] == 1
    assert prediction.error is None and prediction.usage["llm_calls"] == 5


# ------------------------------------------------------------------------------------------------- 19.5, failures
@pytest.mark.parametrize("kind", ["llm", "bug"])
@pytest.mark.parametrize("role", ["thoughts", "chain", "verifier", "reader"])
def test_a_role_that_raises_is_an_error_row_with_its_costs(role: str, kind: str) -> None:
    order = ["thoughts", "chain", "verifier", "reader"]
    roles = scripted_roles(**{role: [broken(kind)]})
    prediction, session, _ = run(roles)
    assert prediction.error == ("the server is down" if kind == "llm" else "RuntimeError: bug")
    assert prediction.answer == "" and session.events[-1] == {"event": "error", "message": prediction.error}
    assert prediction.usage["llm_calls"] == (0, 2, 3, 4)[order.index(role)]
    assert prediction.usage["retriever_calls"] == (1, 5, 5, 5)[order.index(role)]
    # What was found counts for nothing in the scores, but a failed reader loses no evidence.
    assert bool(prediction.context) is (role == "reader")


@pytest.mark.parametrize(
    "role, prompt, flag, answer",
    [
        ("thoughts", "exactly two follow-up questions", "thought_failed", "yes"),
        ("chain", "You lay out how", "chain_failed", "yes"),
        ("verifier", "You check which passages", "verifier_failed", "yes"),
        ("reader", "careful reader", "reader_failed", ""),
    ],
)
@pytest.mark.parametrize("problem", ["", LLMError("down")])
def test_a_model_that_fails_one_role(role: str, prompt: str, flag: str, answer: str, problem: Any) -> None:
    llm = ScriptedBackend.of((prompt, problem), *REPLIES)
    prediction, session, _ = run(prompted(llm))
    assert prediction.answer == answer
    # A reply that no parser reads is the model's; a call that failed for good makes the row one to try again.
    assert (prediction.error is None) == (problem == "")
    row = session.by_role[role]
    rounds = 2 if role == "thoughts" else 1
    assert row[flag] == rounds, "counted once for each failure"
    if isinstance(problem, LLMError):
        assert row["llm_error"] == rounds and row["calls"] == 0
    else:
        assert row["parse_failure"] == row["calls"] == 2, "one retry; the next round's prompt, the same, is not sent"
    assert prediction.usage["retriever_calls"] == (1 if role == "thoughts" else 5)
    assert prediction.context


def test_the_trace_tells_how_it_was_found() -> None:
    chain = [Chain("a - b", flags=("no_anchor",))]
    _, session, _ = run(scripted_roles(ROUNDS, chain=chain, verifier=[Verdict(("d",))]))
    assert session.by_role["chain"]["no_anchor"] == 1
    events = [e["event"] for e in session.events]
    assert events == ["query", "merge", *["query", "query", "merge", "merge"] * 2, "chain", "cut", "evidence", "answer"]
    merges = [(e["round"], e["origin"], e["new"]) for e in session.events if e["event"] == "merge"]
    assert merges == [(0, "question", 4), (1, "fast", 1), (1, "slow", 1), (2, "fast", 1), (2, "slow", 1)]
    cut = next(e for e in session.events if e["event"] == "cut")
    assert cut["selected"] == ["d"] and cut["kept"][0] == "d"


def test_a_round_that_failed_is_not_asked_again() -> None:
    """Nothing of the prompt changed: the second and the third round cost no call; everything else falls back."""
    backend = ScriptedBackend.of(
        ("You lay out how", "The answer is:"), ("You check which", '{"selected": [99]}'),
        ("careful reader", "The answer to this question is:"), (".", "one\ntwo\nthree"),
    )  # fmt: skip
    prediction, _, _ = run(prompted(backend), max_rounds=3)
    spent = ("calls", "prompt_tokens", "completion_tokens")
    assert {r: {k: n for k, n in row.items() if k not in spent} for r, row in prediction.usage["roles"].items()} == {
        "thoughts": {"parse_failure": 2, "repeated_prompt": 2, "round_skipped": 3, "thought_failed": 3},
        "chain": {"chain_failed": 1, "no_answer": 2, "parse_failure": 2},
        "verifier": {"out_of_range": 2, "parse_failure": 2, "verifier_failed": 1},
        "reader": {"no_answer": 2, "parse_failure": 2, "reader_failed": 1},
    }
    assert len(backend.requests) == 8 and prediction.error is None and prediction.answer == ""
