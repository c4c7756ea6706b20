"""Rows of thoughts and verifier for tests, a short prompt of each role, and the settings of a tiny training on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnnrag.io import write_jsonl
from gnnrag.training.rows import ShownPassage, ThoughtsRow, VerifierRow, plain_rows

NAMES = ("Ada", "Bruno", "Clara", "Dario", "Edith", "Farid", "Greta", "Henri", "Ines", "Jonas", "Karin", "Luigi")
TOWNS = ("Kalmar", "Lund", "Porto", "Siena", "Gent", "Bergen", "Turku", "Cadiz", "Graz", "Arles", "Delft", "Brno")
PROMPTS = {
    "thoughts": {
        "system": "Two searches that are missing, as two lines.",
        "user": "{passages}\n{earlier}\n{question}",
        "reminder": "Two lines.",
    },
    "verifier": {
        "system": "Numbers of the passages that the chain rests on, as JSON.",
        "user": "{passages}\n{question}\n{chain}",
        "reminder": "JSON only.",
    },
}


class Letters:
    """Stands for a retriever that ranks the query itself, which is worth the share of its letters that are vowels."""

    inputs: dict[str, str] = {}  # noqa: RUF012

    def rankings(self, queries: Any) -> list[tuple[str, ...]]:
        return [(query,) for query in queries]

    def scores(self, row: Any, rankings: Any) -> dict[str, float]:
        text = "".join(query for (query,) in rankings).casefold()
        vowels = sum(letter in "aeiou" for letter in text) / max(1, len(text))
        return {"found": vowels, "gain": vowels}


def write_prompt(role: str, folder: Path) -> Path:
    """Write a short prompt of a role; the real ones are too long for quick tests."""
    path = folder / f"{role}_short.yaml"
    path.write_text(json.dumps(PROMPTS[role]), "utf-8")
    return path


def passage(number: int) -> ShownPassage:
    name, town = NAMES[number % 12], TOWNS[(number * 5 + 3) % 12]
    return ShownPassage(id=f"p{number}", title=name, text=f"{name} was born in {town}.", score=1.0 - number / 100)


def thoughts_row(number: int, **fields: Any) -> ThoughtsRow:
    """Return a row whose teacher asks for the birthplace and for the film of a person."""
    name, town = NAMES[number % 12], TOWNS[number % 7]
    fast, slow = f"Where was {name} born?", f"Which film of {town} did {name} direct?"
    known = {
        "id": f"t{number}",
        "set": "toy",
        "question_id": f"q{number}",
        "question": f"Who directed the film number {number}?",
        "teacher": "toy",
        "passages": (passage(number), passage(number + 1)),
        "earlier": ("an earlier search",) if number % 2 else (),
        "fast": fast,
        "slow": slow,
    }
    return ThoughtsRow(**known | fields)


def rival_row(number: int) -> ThoughtsRow:
    """Return what another teacher asks where `thoughts_row` stands; of its queries the first has more vowels."""
    fast, slow = "Aia ea ou?", f"Which rhythm has {TOWNS[number % 7]}?"
    return thoughts_row(number, id=f"u{number}", teacher="other", fast=fast, slow=slow)


def verifier_row(number: int, **fields: Any) -> VerifierRow:
    """Return a row with four passages, of which the teacher selected those of even number."""
    passages = tuple(passage(number + i) for i in range(4))
    chosen = [i + 1 for i in range(4) if (number + i) % 2 == 0]
    known = {
        "id": f"v{number}",
        "set": "toy",
        "question_id": f"q{number}",
        "question": f"Where was the director of film {number} born?",
        "teacher": "toy",
        "passages": passages,
        "chain": f"film {number} - directed by - {NAMES[number % 12]}",
        "selected": tuple(passages[i - 1].id for i in chosen),
        "gold": tuple(passages[i - 1].id for i in chosen),
    }
    return VerifierRow(**known | fields)


def write_rows(folder: Path, role: str, count: int = 24, **fields: Any) -> Path:
    """Write rows of a role."""
    make = thoughts_row if role == "thoughts" else verifier_row
    path = folder / f"{role}.jsonl"
    write_jsonl(path, plain_rows(make(number, **fields) for number in range(count)))
    return path


def settings(folder: Path, role: str, model: Path, *more: str, count: int = 24) -> list[str]:
    """Return the dots of a tiny training; rows and prompt are written into the folder."""
    rows, prompt = str(write_rows(folder, role, count)), write_prompt(role, folder)
    if "stage=dpo" in more:  # preferences need a second teacher
        write_jsonl(folder / "rivals.jsonl", plain_rows(map(rival_row, range(count))))
        rows += f",{folder / 'rivals.jsonl'}"
    return [
        "kind=causal", f"model.base={model}", f"sets.toy.rows=[{rows}]", f"prompt={prompt}",
        f"run.root={folder / 'runs'}", "trainer.max_steps=4", "trainer.per_device_train_batch_size=4",
        "trainer.eval_steps=2", "trainer.save_steps=2", "trainer.logging_steps=1", "trainer.learning_rate=0.003",
        "trainer.gradient_checkpointing=false", "reply_tokens=6", "validation=4", "lora.r=8",
        *more,
    ]  # fmt: skip


def thoughts_training(config: Any, fold: int | None) -> Any:
    """Return a training on the rows of set `toy`, with `Letters` for a corpus."""
    from accelerate import Accelerator

    from gnnrag.training.base import RunContext
    from gnnrag.training.language import ThoughtsCausalTraining
    from gnnrag.training.sets import read_set

    sets = {"toy": read_set("toy", config.sets["toy"], ThoughtsRow)}
    return ThoughtsCausalTraining(config, (sets, {"toy": Letters()}), fold, RunContext(Accelerator(cpu=True)))
