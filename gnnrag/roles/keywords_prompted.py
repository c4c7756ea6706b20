"""Keywords by a language model (LightRAG, PathRAG): two lists in one JSON object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.asking import Keywords, KeywordsTask
from gnnrag.roles.parsing import clean_line, json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

_KEYS = {"low": ("low", "low_level", "low_level_keywords"), "high": ("high", "high_level", "high_level_keywords")}
_MAX_LENGTH = 100  # characters of a keyword: a longer one is a sentence


@dataclass
class PromptedKeywordsConfig(PromptedConfig):
    """Settings of `PromptedKeywords`."""

    max_tokens: int = 256
    max_keywords: int = 20  # of each list


class PromptedKeywords:
    """Asks once, and once more after a malformed reply. Failing both times gives no keywords and `keywords_failed`.

    What empty lists mean is for the retriever to say: LightRAG takes a short query for a keyword, PathRAG gives up.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedKeywordsConfig

    def __init__(self, backend: Backend, config: PromptedKeywordsConfig | None = None) -> None:
        self.config = config or PromptedKeywordsConfig()
        self._prompter = Prompter("keywords", backend, self.config)
        self.prompters = (self._prompter,)

    async def __call__(self, task: KeywordsTask, session: Session) -> Keywords:
        """Return the keywords of a query."""
        outcome = await self._prompter.ask(session, {"query": inline(task.query)}, parse_keywords)
        if outcome.value is None:
            return Keywords(flags=("keywords_failed",))
        low, high = (tuple(row[: self.config.max_keywords]) for row in outcome.value)
        return Keywords(low, high)


def parse_keywords(text: str) -> tuple[list[str], list[str]]:
    """Return the low-level and the high-level keywords of a reply, cleaned, without repeats.

    Raises:
        MalformedError: there is no JSON object with both lists.
    """
    for data in json_objects(strip_markup(strip_thinking(text))):
        lowered = {str(k).strip().lower(): v for k, v in data.items()}
        lists = [next((lowered[k] for k in keys if isinstance(lowered.get(k), list)), None) for keys in _KEYS.values()]
        if None not in lists:
            return _strings(lists[0]), _strings(lists[1])
    raise MalformedError("no JSON object with the lists 'low' and 'high'")


def _strings(values: Any) -> list[str]:
    """Keep what is text; names may be numbers (`1984`)."""
    texts = [str(v) for v in values if isinstance(v, str | int) and not isinstance(v, bool)]
    return list(dict.fromkeys(line for text in texts if (line := clean_line(text, _MAX_LENGTH))))
