"""What of an answer a judge is shown: no label of a method, one cap, and always the answer itself."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gnnrag.judge import judge
from gnnrag.judge.answers import plain_text, shortened
from tests.helpers.each import each
from tests.helpers.judged import question, scripted, settings, shown, verdict, write_data, write_run


@each(
    "text, plain",
    [
        ("**Paris**", "Paris"),
        ("__Paris__", "Paris"),
        ("# Paris", "Paris"),
        ("**No**", "No"),
        ("## **Answer: Paris** ##", "Paris"),
        ("It lies on the Seine.\n\n**Answer: Paris**", "It lies on the Seine.\n\nParis"),
        ("## Logic draft\nSo.\n\n**Final answer**\n\n**Paris**", "So.\n\nParis"),
        ("**Paris**\n\nIt lies on the Seine.", "Paris\n\nIt lies on the Seine."),
        ("**a** and **b**", "**a** and **b**"),
        ("Slow thought: s.\nPath 2: a - b\n---\n**Answer**: C#", "s.\na - b\nC#"),
        ("So.\nAnswer:\nRome", "So.\nRome"),
        ("Opposite of question?\n**Answer**", "Opposite of question?\nAnswer"),
        ("Answer:", "Answer:"),
        ("***", "***"),
        ("Rome\n---\n\n", "Rome"),
        ("", ""),
    ],
)
def test_headings_go_and_answers_stay(text: str, plain: str) -> None:
    assert plain_text(text) == plain


@given(st.text(alphabet="#*_-=: \nAnswerP", max_size=40))
def test_no_text_becomes_empty(text: str) -> None:
    assert bool(plain_text(text)) == bool(text.strip())


def test_long_texts_are_cut() -> None:
    assert shortened("one two\nthree four", 3) == "one two\nthree …"
    assert shortened("one two", 2) == "one two"
    text = "# Logic draft\n\n**Final answer**\nThought: a [1].\n\n\n---\n**Answer:** Rome: the city\nSub-answer 2: x"
    assert shortened(text, 50, plain=True) == "a [1].\n\nRome: the city\nx"
    assert shortened(text, 50) == text


def test_a_cut_keeps_the_end_and_the_answer() -> None:
    steps = " ".join(f"s{n}" for n in range(20))
    assert shortened(f"{steps}\nNew York", 8, answer="New York") == "s0 s1 s2 s3 s4 s5 … New York"
    # The answer is neither in the beginning nor in the end: it stands for the end.
    text = f"{steps} Answer: New York. {steps}"
    assert shortened(text, 8, answer="New York") == "s0 s1 s2 s3 s4 s5 … New York"
    assert shortened(f"New York. {steps}", 8, answer="new york") == "New York. s0 s1 s2 s3 … s18 s19"
    assert shortened(f"**Step**\n{steps}\n**Answer: Rome**", 4, plain=True, answer="Rome") == "Step\ns0 s1 … Rome"
    assert shortened(f"x y z\n{steps}", 4, answer=steps) == "s0 s1 s2 … s19"
    assert shortened(f"{steps} a b", 2, answer="a b") == "… a b"
    for cap in range(1, 25):
        cut = shortened(f"{steps}\nRome {steps}", cap, answer="Rome")
        assert "Rome" in cut and len(cut.replace("…", "").split()) <= cap


def test_bold_answers_are_compared_and_none_is_lost(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", [question(n) for n in range(2)])
    first = write_run(tmp_path / "a", data, {"q0": "**Paris**", "q1": "# No"})
    second = write_run(tmp_path / "b", data, {"q0": "London", "q1": ""})
    backend = scripted(lambda request: verdict("A"))
    (report,) = judge(settings("pairwise", first, second), backend=backend)["judgements"]
    assert [set(shown(request)) for request in backend.requests] == [{"Paris", "London"}] * 2
    assert report["counts"]["unanswered"] == 1 and report["dimensions"]["overall"]["won"] == 1
    assert [report["judged_runs"][name]["empty"] for name in "ab"] == [0, 1]
