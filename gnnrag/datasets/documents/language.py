"""Which language a text is in, by its script and its most frequent words: enough to name a file that is in another."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_WORDS = {
    "English": "the of and to in is that for it was with as be on are by this which from or have not",
    "German": "der die und das ist nicht ein eine mit den von zu auf für dem des sich auch wird im bei oder werden",
    "French": "le la les des et est une dans que pour qui sur avec pas plus par au aux ce sont cette ou du",
    "Spanish": "el los las que y es una por con para del se su al lo como más pero sus este ha o en",
    "Italian": "il di che è una per con non del della sono nel alla dei gli anche come più le ma si",
    "Portuguese": "o os as que e é uma por com para do da não dos das em se mais como ao foi na no",
    "Dutch": "de het een van en is dat op te zijn met voor niet aan door ook bij naar wordt deze maar of",
    "Swedish": "och att det som en är av för på med den till inte ett har om de från kan var",
    "Danish": "og at det som en er af for på med den til ikke et har om de fra kan var blev også",
    "Polish": "i w na z do nie się to jest że od przez dla po oraz jak o ale który są tym być",
    "Czech": "a v na se je že s z do o i to ve jako pro by za od jsou při byl která jeho",
    "Finnish": "ja on ei se että joka oli hän ovat mutta myös kuin sen tai ole kun voi mukaan jossa",
    "Turkish": "ve bir bu da de için ile olarak olan daha çok en gibi ne kadar sonra her değil olduğu",
}
_SETS = {name: frozenset(words.split()) for name, words in _WORDS.items()}
_SCRIPTS = {
    "CYRILLIC": "a language in Cyrillic script", "GREEK": "Greek", "ARABIC": "Arabic", "HEBREW": "Hebrew",
    "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean", "CJK": "Chinese", "THAI": "Thai",
    "DEVANAGARI": "a language in Devanagari script",
}  # fmt: skip
_LEAST = 30  # words below which nothing is said
_SHARE = 0.08  # of words that have to be among the most frequent of a language
_TOKEN = re.compile(r"[^\W\d_]+")


def language_of(text: str) -> str:
    """Return the language of a text, empty where it is too short or in none of those known."""
    sample = text[:20_000]
    letters = Counter(unicodedata.name(c, "").split(" ")[0] for c in sample if c.isalpha() and not c.isascii())
    total = sum(c.isalpha() for c in sample)
    scripts = Counter[str]()
    for script, count in letters.items():
        if script in _SCRIPTS:
            scripts[_SCRIPTS[script]] += count
    if total >= _LEAST and scripts:
        name, count = scripts.most_common(1)[0]
        if scripts["Japanese"] > 0.1 * total:  # its text has more Chinese characters than its own
            return "Japanese"
        if count > 0.5 * total:
            return name
    words = [word.casefold() for word in _TOKEN.findall(sample)]
    if len(words) < _LEAST:
        return ""
    shares = {name: sum(word in known for word in words) / len(words) for name, known in _SETS.items()}
    shares = {name: share if len(_SETS[name].intersection(words)) > 2 else 0.0 for name, share in shares.items()}
    best = max(shares, key=lambda name: shares[name])
    others = max(share for name, share in shares.items() if name != best)
    return best if shares[best] >= _SHARE and shares[best] > 1.2 * others else ""
