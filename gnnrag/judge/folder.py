"""A judge's replies, read strictly, and the folder of judgements: a row a call, and the figures, written last."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnrag.common.files import Journal, child, digest, file_digest, read_journal, read_json, write_json, write_jsonl
from gnnrag.common.records import JUDGEMENT, interpreting, number, refuse_other, text
from gnnrag.common.yaml_config import recorded
from gnnrag.config import to_plain
from gnnrag.errors import ConfigError
from gnnrag.judge.answers import CRITERIA, CountConfig, JudgeBudgetConfig, JudgeConfig
from gnnrag.roles.parsing import json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError
from gnnrag.run.rundir import commit, differences, fingerprint_fields, lock_run

DIMENSIONS = ("comprehensiveness", "logicality", "relevance", "coherence", "overall")
FIRST, SECOND, TIE = "A", "B", "tie"  # the answer that is shown first, the other one, neither
HIGHEST = 10

# The scale behind, or around, a score: 8/10, 8 (out of 10), 8 (max 10), 8 (10 being the best), on a scale from 0 to 10.
_TEN = r"10(?![\d.,]*\d)"
_SCALES = re.compile(
    rf"(?<=\d)\s*[(\[]?\s*(?:/|out\s+of|of(?=\s*10\b(?!\s+[a-z])))\s*{_TEN}\s*[)\]]?"
    rf"|[(,;]\s*(?:max(?:imum)?\.?|at\s+most)\s*(?:of|is|[:=])?\s*{_TEN}\)?"
    rf"|[(,;]\s*{_TEN}\s+(?:being|is|means|=)\s+(?:the\s+)?(?:best|highest|top|perfect|maximum|max)\b\)?"
    r"|\b(?:on|using)\s+(?:a|the)\s+(?:10|ten)[\s-]point\s+scale\b"
    rf"|\b(?:on\s+)?(?:a|the)\s+scale\s+(?:of|from)\s+[01]\s*(?:to|[-–])\s*{_TEN}",
    re.IGNORECASE,
)
_NAMES = "|".join(name.replace("_", "[ _]") for name in CRITERIA)
# A line that starts with what is rated and a colon. Behind a criterion's name words may stand as well as its score.
_LABELLED = re.compile(
    rf"^(?:[^\S\n]|[>#'\"(-])*+(?:(?:final|overall|my)\s+)?(?:(?P<score>score|rating|grade)|{_NAMES})\s*[:=]\s*",
    re.IGNORECASE | re.MULTILINE,
)
_BLANKS = re.compile(r"\s{10,}")  # more than a pattern here should try in all ways
_COUNTS = re.compile(r"[ \t]*(?!points?\b|because\b|since\b)[^\W\d_]", re.IGNORECASE)  # 2 aspects are missing
_BARE = re.compile(r"[\s>#'\"(]*(\d{1,2})[\s)'\"]*")  # fills a line, and is no number of a list
_LINE = re.compile(r"[\s>#'\"(]*(\d{1,2})[\s.)'\"]*")
_QUOTED = re.compile(r'"[^"\n]*"|“[^“”\n]*”|«[^«»\n]*»|`[^`\n]*`')
_NUMBER = re.compile(r"[-−–+~<>]?\d+(?:[.,]\d+)*")
_JOINED = re.compile(r"\d\s*(?:to|or|and|/|:)\s*$", re.IGNORECASE)  # in front of the second number of a range
_JOINS = re.compile(r"\s*(?:to|or|and|[-−–/:])\s*\d", re.IGNORECASE)  # behind the first number of one


def parse_score(text: str) -> int:
    """Return the score that a reply gives, a whole number from 0 to 10.

    That is the number behind a label (`Score: 8`, `Correctness: 8`, but not `Factuality: 1 claim is wrong`); else the
    number that fills a line; else the last number. Quotations do not count; `8/10` is 8.

    Raises:
        MalformedError: there is no number; labels and lines give different ones; the number is a fraction, part of a
            range or a word, or above 10; or it is merely the last one, and another one up to 10 is in the reply.
    """
    text = _BLANKS.sub(lambda blanks: "\n" if "\n" in blanks[0] else " ", strip_markup(strip_thinking(text)))
    text = _SCALES.sub(" ", text)
    labels = list(_LABELLED.finditer(text))
    given = [_labelled(text, found) for label in labels if (found := _score_behind(text, label))]
    line_form = _BARE if given else _LINE
    given += [int(found[1]) for line in text.splitlines() if (found := line_form.fullmatch(line))]
    if len(set(given)) > 1:
        raise MalformedError(f"several scores: {', '.join(map(str, given))}")
    if labels and not given:
        raise MalformedError("no number behind a label")
    score = given[0] if given else _last(_QUOTED.sub(" ", text))
    if score > HIGHEST:
        raise MalformedError(f"{score} is above {HIGHEST}")
    return score


def _score_behind(text: str, label: re.Match[str]) -> re.Match[str] | None:
    """Return the number behind a label; none where it counts something."""
    number = _NUMBER.match(text, label.end())
    return None if number and not label["score"] and _COUNTS.match(text, number.end()) else number


def _labelled(text: str, number: re.Match[str]) -> int:
    if not _is_whole(text, number) or _JOINS.match(text, number.end()):
        raise MalformedError(f"{number[0]!r} behind a label is no whole number that stands alone")
    return int(number[0])


def _last(text: str) -> int:
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        raise MalformedError("no number")
    last = numbers[-1]
    if not _is_whole(text, last) or _JOINED.search(text[: last.start()]):
        raise MalformedError(f"{last[0]!r} is no whole number that stands alone")
    for other in numbers[:-1]:
        size = int(re.split("[.,]", other[0].lstrip("-−–+~<>"))[0])
        is_in_word = text[max(other.start() - 1, 0) : other.start()].isalpha()
        if size <= HIGHEST and other[0] != last[0] and not is_in_word:
            raise MalformedError(f"both {other[0]!r} and {last[0]!r} may be the score")
    return int(last[0])


def _is_whole(text: str, number: re.Match[str]) -> bool:
    before, after = text[max(number.start() - 1, 0) : number.start()], text[number.end() : number.end() + 1]
    is_part = before.isalnum() or before == "_" or re.match(r"[\w%/]", after)
    return number[0].isdecimal() and not is_part


def parse_verdict(text: str, ties: bool) -> dict[str, str]:
    """Return the winner of each dimension: `A`, `B`, or `tie` where ties are allowed.

    Raises MalformedError where no object names a winner of every dimension, or several name different ones.
    """
    allowed = {FIRST.lower(): FIRST, SECOND.lower(): SECOND} | ({TIE: TIE} if ties else {})
    verdicts: list[dict[str, str]] = []
    for data in json_objects(strip_markup(strip_thinking(text))):
        named = {name: _winner(data.get(name)) for name in DIMENSIONS}
        verdict = {name: allowed[winner] for name, winner in named.items() if winner in allowed}
        if len(verdict) == len(DIMENSIONS) and verdict not in verdicts:
            verdicts.append(verdict)
    if len(verdicts) != 1:
        raise MalformedError(f"{len(verdicts)} verdicts with a winner of every dimension")
    return verdicts[0]


def _winner(value: Any) -> str:
    value = value.get("winner") if isinstance(value, dict) else value
    return value.strip().lower() if isinstance(value, str) else ""


# --------------------------------------------------------------------------------------------------------- the folder
Key = tuple[str, str, int]  # question, part (a criterion, or an order), repeat from 0
ROWS, META, METRICS, SCORES = "replies.jsonl", "meta.json", "metrics.json", "scores.jsonl"
# Settings that change no reply: a judgement goes on with other values of these, and its figures are made anew.
_FREE = ("runs", "out", "name", "data_path", "repeats", "sample", "count", "budget")
ANEW = "delete the folder to judge anew"
MALFORMED, LLM_ERROR = "malformed", "llm_error"
SPENT = ("calls", "cached_calls", "prompt_tokens", "completion_tokens", "cost", "malformed", "refused")


@dataclass(frozen=True)
class Call:
    """One thing that the judge is asked; `part` is the criterion or the order of answers, `values` fill the prompt."""

    question_id: str
    part: str
    prompt: tuple[str, str]
    values: Mapping[str, str]

    @property
    def shown(self) -> str:
        """What tells whether an earlier reply was to the same."""
        return digest(dict(self.values))[:16]


@dataclass(frozen=True)
class Replies:
    """What is known of the calls so far, by key."""

    rows: Mapping[Key, Mapping[str, Any]] = field(default_factory=dict)

    def value(self, question_id: str, part: str, repeat: int = 0) -> Any:
        """Return what a reply said; None where it is missing."""
        return self.rows.get((question_id, part, repeat), {}).get("value")

    def problem(self, question_id: str, part: str, repeat: int = 0) -> str:
        """Return why a value is missing: `malformed` or `llm_error`; empty where it is not."""
        return str(self.rows.get((question_id, part, repeat), {}).get("problem", ""))


class JudgementDir:
    """The folder of one judgement; rows are appended as replies come, and survive a kill.

    Raises ConfigError where it holds replies made with other settings, or something else; ArtefactError where
    `meta.json` or a reply is damaged or forged, or it holds links; GnnragError while another process is writing it.
    """

    def __init__(self, path: Path, config: JudgeConfig, runs: Sequence[str], prompts: Mapping[str, str]) -> None:
        self.path = path
        made_with = {"settings": settings_of(config), "runs": list(runs), "prompts": dict(prompts)}
        refuse_other(path, JUDGEMENT)
        self._lock: ExitStack = lock_run(path, "judgement")
        try:
            self._check(made_with)
            self._journal = Journal(path / ROWS)
            self.rows: dict[Key, dict[str, Any]] = {}
            self._spent: Counter[str] = Counter()
            with interpreting(path / ROWS, ANEW):
                for row in self._journal.rows:
                    check_row(row, config.kind)
                    self._take(row)
            write_json(path / META, {**made_with, "commit": commit()})
        except BaseException:
            self._lock.close()
            raise

    def _check(self, made_with: Mapping[str, Any]) -> None:
        if not read_journal(self.path / ROWS):
            return
        with interpreting(self.path / META, ANEW):
            try:
                old = read_json(self.path / META)
            except FileNotFoundError as error:
                raise ValueError("there is none") from error
            had = {name: old[name] for name in made_with}
            # Prompts of criteria that were not asked before are no change.
            common = had["prompts"].keys() & made_with["prompts"].keys()
            had["prompts"] = {**made_with["prompts"], **{name: had["prompts"][name] for name in common}}
            changed = sorted(differences(had, json.loads(json.dumps(recorded(made_with)))))
        if changed:
            raise ConfigError(
                f"{self.path} holds judgements made with other settings ({', '.join(changed[:5])}); give another name, "
                "or delete the folder to judge anew"
            )

    def todo(self, calls: Iterable[Call], repeats: int) -> list[tuple[Call, int]]:
        """Return calls that have no reply yet, with their repeat; those that failed for the server come again.

        Raises ConfigError where a reply was to another text: run or data have changed.
        """
        missing = []
        for call in calls:
            for repeat in range(repeats):
                row = self.rows.get((call.question_id, call.part, repeat))
                if row is not None and row["shown"] != call.shown:
                    raise ConfigError(
                        f"{self.path} judged another text of question {call.question_id!r}: the run or its data has "
                        "changed since; give another name, or delete the folder to judge anew"
                    )
                if row is None or row["problem"] == LLM_ERROR:
                    missing.append((call, repeat))
        return missing

    def add(self, row: dict[str, Any]) -> None:
        """Keep a reply; to one that is asked for again, what the earlier attempts took is added."""
        if earlier := self.rows.get(key_of(row)):
            usage = {name: value + earlier["usage"][name] for name, value in row["usage"].items()}
            row = {**row, "usage": usage}
        self._take(row)
        self._journal.append(row)

    def _take(self, row: dict[str, Any]) -> None:
        if earlier := self.rows.get(key_of(row)):
            self._spent.subtract(earlier["usage"])
        self._spent.update(row["usage"])
        self.rows[key_of(row)] = row

    def spent(self) -> dict[str, Any]:
        """Return what all replies in the folder took; `malformed` and `refused` count replies, retries included."""
        return {name: self._spent[name] for name in SPENT} | {"cost": round(self._spent["cost"], 8)}

    def exceeded(self, budget: JudgeBudgetConfig) -> str:
        """Say which limit is reached; empty where none is."""
        spent = self.spent()
        limits = (
            ("max_calls", spent["calls"], budget.max_calls),
            ("max_tokens", spent["prompt_tokens"] + spent["completion_tokens"], budget.max_tokens),
            ("max_cost", spent["cost"], budget.max_cost),
        )
        for name, used, limit in limits:
            if limit is not None and used >= limit:
                return f"budget.{name}={limit:g} is used up ({used:g})"
        return ""

    def finish(self, order: Sequence[Key], report: Mapping[str, Any], scores: Sequence[Mapping[str, Any]]) -> None:
        """Put the rows in order and write the figures; rows outside of `order` are kept behind."""
        known = set(order)
        keys = [key for key in order if key in self.rows] + sorted(key for key in self.rows if key not in known)
        write_jsonl(self.path / ROWS, [self.rows[key] for key in keys])
        write_jsonl(self.path / SCORES, scores)
        write_json(self.path / METRICS, report)

    def close(self) -> None:
        """Let other processes write the folder."""
        self._journal.close()
        self._lock.close()


def check_row(row: Mapping[str, Any], kind: str) -> None:
    """Raise ValueError, KeyError or the like where a row is none that a judge of a kind writes."""
    if [type(part) for part in key_of(row)] != [str, str, int]:
        raise ValueError(f"{key_of(row)!r:.80} are no question, part and repeat")
    value, is_score = row["value"], kind == "scores"
    if value is not None and (is_score and not 0 <= number(value) <= HIGHEST):
        raise ValueError(f"{value!r} is no score")
    if value is not None and not is_score and not all(text(value[name]) for name in DIMENSIONS):
        raise ValueError(f"{value!r:.80} is no verdict")
    if row["problem"] not in ("", MALFORMED, LLM_ERROR):
        raise ValueError(f"{row['problem']!r:.40} is no problem")
    text(row["shown"])
    for name in SPENT:
        number(row["usage"].get(name, 0))


def key_of(row: Mapping[str, Any]) -> Key:
    """Return the key of a row."""
    return row["question_id"], row["part"], row["repeat"]


def settings_of(config: JudgeConfig) -> dict[str, Any]:
    """Return the settings that decide replies."""
    plain = {key: value for key, value in to_plain(config).items() if key not in _FREE}
    plain["ask"] = {key: value for key, value in plain["ask"].items() if key != "criteria"}
    return fingerprint_fields(plain)


def judged_figures(run: Path) -> dict[str, Any]:
    """Return what the judgements in a run directory say, for tables: scores and criteria, and win rates in percent.

    A win rate is against the run compared with. Only default names (`scores`, `pairwise`) and current predictions
    count; samples of some types and figures with too few or missing values (`CountConfig`) do not.
    """
    figures: dict[str, Any] = {}
    for kind in ("scores", "pairwise"):
        path = child(run, f"judgements/{kind}/{METRICS}", ".+")
        if not path.is_file():
            continue
        with interpreting(path, "judge the run anew"):
            report = read_json(path)
            settings = report["settings"]
            if settings["sample"]["types"] or not _is_current(run, report["judged_runs"]):
                continue
            rules, scale = CountConfig(**settings["count"]), 1 if kind == "scores" else 100
            for name, mean, interval, counted, asked in _figures(report):
                if mean is not None and rules.is_enough(int(number(counted or 0)), int(number(asked or 0))):
                    figures[f"judge/{name}"] = scale * number(mean)
                    figures |= {f"judge/{name}_counted": number(counted), f"judge/{name}_asked": number(asked)}
                if f"judge/{name}" in figures and interval is not None:
                    low, high = interval
                    figures[f"judge/{name}_ci"] = [scale * number(low), scale * number(high)]
    return figures


def _figures(report: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield name, mean, interval, number of values, and of those there should be, of all that a report holds."""
    for name in ("a_score", "e_score", "win_rate"):
        yield name, *(report.get(f"judge/{name}{part}") for part in ("", "_ci", "_counted", "_asked"))
    for name in CRITERIA:
        if own := report.get("criteria", {}).get(name):
            asked = own["counted"] + own["malformed"] + own["llm_error"]
            yield name, own["mean"], own["interval"], own["counted"], asked
    for name in DIMENSIONS[:-1]:  # the last is the win rate itself
        if own := report.get("dimensions", {}).get(name):
            yield f"win_{name}", *(own[part] for part in ("win_rate", "interval", "counted", "asked"))


def _is_current(run: Path, judged: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether all judged runs (looked for beside `run`: recorded paths are untrusted) keep their predictions."""
    here = run.resolve()
    if here.name not in judged:
        return False
    for name, of in judged.items():
        place = here if name == here.name else child(here.parent, name)
        predictions = child(place, "predictions.jsonl")
        if not predictions.is_file() or file_digest(predictions) != of["predictions"]:
            return False
    return True
