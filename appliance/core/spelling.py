"""Queries typed in pinyin, read as what the documents hold: ``jiaoan`` becomes 教案.

Only a query of nothing but Latin words is looked at, and in it only words that the index does not
hold, so that an English question is never touched. Of the ways to read a word, the one whose
bigrams stand most often in the documents is taken; what was read is said in the search result.
"""

from __future__ import annotations

import math
import re
import threading
from collections import defaultdict

from appliance.store import Store
from appliance.text import pinyin
from appliance.text.cjk import STOP_EN, fold

_WORD = re.compile(r"[a-z]+")
_MOST_WORDS = 4
_MOST_LOOKUPS = 4000
"""Bigrams looked up for one pair of syllables; ji-shi has the most, about 6,000."""

_INITIALS = range(2, 5)
"""Letters that may be first letters of characters."""


class Speller:
    """Reads pinyin by the vocabulary of one store; any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._initials: dict[str, tuple[str, int]] = {}
        self._initials_of: int | None = None

    def read(self, query: str) -> str:
        """Return the query with pinyin replaced by Chinese, or as it is."""
        folded = fold(query).strip()
        words = _WORD.findall(folded)
        if (
            not words
            or len(words) > _MOST_WORDS
            or not all(char.isascii() for char in folded)
            or any(char.isdigit() for char in folded)
            or any(word in STOP_EN and not pinyin.is_syllable(word) for word in words)
            or all(word in STOP_EN for word in words)
        ):
            return query
        known = self._store.known_terms(words)
        if len(words) > 1 and not known:
            # People put spaces between syllables as well as between words.
            said = self._read_word("".join(words))
            if said is not None:
                return said
        read = []
        for word in words:
            said = word if word in known else self._read_word(word)
            if said is None:
                return query
            read.append(said)
        return query if read == words else " ".join(read)

    def _read_word(self, word: str) -> str | None:
        best: tuple[float, str] | None = None
        for syllables in pinyin.cuts(word):
            found = self._best_reading(syllables)
            if found is not None and (best is None or found > best):
                best = found
        if best is not None:
            return best[1]
        return self._by_initials(word) if len(word) in _INITIALS else None

    def _best_reading(self, syllables: tuple[str, ...]) -> tuple[float, str] | None:
        """Return (score, characters) of the likeliest chain of bigrams; the Viterbi algorithm."""
        chains: dict[str, tuple[float, str]] = {}
        for n in range(len(syllables) - 1):
            candidates = list(pinyin.pairs(syllables[n], syllables[n + 1]))[:_MOST_LOOKUPS]
            known = self._store.known_terms(candidates)
            longer: dict[str, tuple[float, str]] = {}
            for bigram, df in known.items():
                if n and bigram[0] not in chains:
                    continue
                score, text = chains[bigram[0]] if n else (0.0, bigram[0])
                score += math.log(df + 1)
                if bigram[1] not in longer or score > longer[bigram[1]][0]:
                    longer[bigram[1]] = (score, text + bigram[1])
            chains = longer
        if not chains:
            return None
        score, text = max(chains.values())
        return score / (len(syllables) - 1), text

    def _by_initials(self, word: str) -> str | None:
        """Return characters that begin with these letters; of several, the most frequent."""
        table = self._table()
        chain: str | None = None
        for n in range(len(word) - 1):
            found = table.get(word[n : n + 2])
            if found is None:
                return None
            if chain is None:
                chain = found[0]
            elif chain[-1] == found[0][0]:
                chain += found[0][1]
            else:
                chain += f" {found[0]}"
        return chain

    def _table(self) -> dict[str, tuple[str, int]]:
        """Return the most frequent bigram of each two letters; made anew when the index grew."""
        with self._lock:
            n_passages = self._store.count_passages()
            known = self._initials_of
            if known is None or not 0.9 * known <= n_passages <= 1.1 * known:
                best: dict[str, tuple[str, int]] = defaultdict(lambda: ("", 0))
                for term, df in self._store.vocabulary():
                    if pinyin.is_bigram(term):
                        for letters in pinyin.initials(term):
                            if df > best[letters][1]:
                                best[letters] = (term, df)
                self._initials, self._initials_of = dict(best), n_passages
            return self._initials
