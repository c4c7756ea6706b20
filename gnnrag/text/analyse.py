"""Passages to sentences and phrases: the first stage of every graph index."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gnnrag.errors import ConfigError
from gnnrag.text.normalise import drop_qualifier
from gnnrag.text.nounphrases import PhraseRules, Token, noun_phrases
from gnnrag.text.phrases import rule_phrases
from gnnrag.text.sentences import split_sentences
from gnnrag.types import Passage

log = logging.getLogger(__name__)

TitleMode = Literal["merge", "own"]
RULES = "blank:en"


@dataclass(frozen=True, slots=True)
class PassageText:
    """What one passage says: its sentences in order, and the phrases of each.

    Attributes:
        sentences: the sentences; the first one begins with the title (`title_mode="merge"`) or is the title (`own`).
        phrases: for each sentence, its distinct phrases in order of appearance.
    """

    sentences: tuple[str, ...]
    phrases: tuple[tuple[str, ...], ...]


def resolve_language(language: str) -> str:
    """Return the analyser that `language` stands for on this machine: an installed spaCy model, or the rules.

    Use the result in the key of what is built from `analyse`: an index made by rules must not pass for one made by a
    model.
    """
    if language in (RULES, "rules"):
        return RULES
    if not language:
        raise ConfigError(f"language={language!r}: name a spaCy model, or {RULES!r} for rules")
    import spacy.util  # a second of import time, and only for those who name a model

    if spacy.util.is_package(language):
        return language
    log.warning("spaCy model %r is not installed; phrases come from rules (%s)", language, RULES)
    return RULES


def analyse(
    passages: Sequence[Passage],
    language: str = RULES,
    title_mode: TitleMode = "merge",
    phrase_rules: PhraseRules = "clean",
) -> list[PassageText]:
    """Split each passage into sentences and find their phrases (MGranRAG, AAAI 2026).

    Each result depends on its own passage only, so an index can analyse new passages alone.

    Args:
        passages: the passages.
        language: an installed spaCy model, or `blank:en` for rules.
        title_mode: `merge` glues the title to the first sentence, as the released code does; `own` makes it a sentence.
        phrase_rules: how a spaCy model's tags become phrases; the rules ignore it.
    """
    sentences = [_sentences(passage, title_mode) for passage in passages]
    if (model := resolve_language(language)) == RULES:
        by_passage = [_ruled_phrases(row) for row in sentences]
    else:
        tagged = iter(_tagged_phrases([s for row in sentences for s in row], model, phrase_rules))
        by_passage = [[next(tagged) for _ in row] for row in sentences]
    texts = []
    for passage, row, found in zip(passages, sentences, by_passage, strict=True):
        if passage.title.strip() and found:
            found[0] = [*_title_phrases(passage.title), *found[0]]
        texts.append(PassageText(tuple(row), tuple(tuple(dict.fromkeys(p)) for p in found)))
    return texts


def _sentences(passage: Passage, title_mode: TitleMode) -> list[str]:
    title, sentences = passage.title.strip(), split_sentences(passage.text)
    if not title:
        return sentences
    if title_mode == "own" or not sentences:
        return [title, *sentences]
    if title_mode != "merge":
        raise ConfigError(f"title_mode={title_mode!r}: allowed are merge, own")
    return [f"{title}\n\n{sentences[0]}", *sentences[1:]]


def _title_phrases(title: str) -> list[str]:
    """A title is a phrase whatever its spelling, and so is what it names without its qualifier."""
    return list(dict.fromkeys((title.strip(), drop_qualifier(title))))


def _ruled_phrases(sentences: Sequence[str]) -> list[list[str]]:
    """Phrases by rules; a word that is capital only where a sentence begins (`Founded`, `Nonetheless`) is no name."""
    found = [rule_phrases(sentence) for sentence in sentences]
    starts = [i for i, p in enumerate(found) if p and p[0].isalpha() and sentences[i].startswith(p[0])]
    if starts:
        # A single word at the start stays where the passage writes it capital elsewhere too.
        inside = Counter(word for phrases in found for phrase in phrases for word in phrase.split())
        for i in starts:
            inside[found[i][0]] -= 1
        for i in starts:
            if inside[found[i][0]] <= 0:
                found[i] = found[i][1:]
    return found


def _tagged_phrases(sentences: Sequence[str], model: str, rules: PhraseRules) -> Iterable[list[str]]:
    """Named entities and noun phrases of each sentence, by a spaCy model."""
    import spacy

    wanted = ("parser", "lemmatizer", "senter")  # neither noun chunks nor lemmas are used
    nlp = spacy.load(model, exclude=wanted)
    for doc in nlp.pipe(sentences, batch_size=256):
        pieces = (piece.strip() for entity in doc.ents for piece in entity.text.split("\n"))
        names = list(dict.fromkeys(piece for piece in pieces if any(c.isalnum() for c in piece)))
        tokens = [Token(t.text, t.shape_, t.pos_) for t in doc]
        yield list(dict.fromkeys([*names, *noun_phrases(tokens, rules, frozenset(names))]))
