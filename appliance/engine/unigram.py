"""A unigram tokenizer in a few megabytes, for embedders with XLM-RoBERTa's vocabulary.

llama.cpp keeps a trie of 250,000 pieces for such a model: 122 MB beside weights of 70 MB (measured
with multilingual-e5-small, llama-cpp-python 0.3.36, x86-64). Here a piece is a 64-bit hash in a
sorted array, and all pieces that occur in a text are found by one array operation per piece
length: about 4 MB, and fast enough that embedding, not tokenising, is the work.

The tokens are those of llama.cpp's own tokenizer, which are SentencePiece's; a test compares them
on random text. The best segmentation is the one with the highest sum of scores (Kudo, 2018,
"Subword Regularization", section 3.2: Viterbi). A character that no piece covers becomes the
unknown token at ten below the lowest score, and neighbouring unknowns become one.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from appliance.engine.slots import TokenArray
from appliance.errors import ModelRejectedError
from appliance.system.gguf import GgufHeader, read_raw, read_texts

_SPACE = "\u2581"
_UNKNOWN_PENALTY = 10.0
_NORMAL, _USER_DEFINED, _UNUSED = 1, 4, 5
# Any odd number with well-spread bits; hashes are compared for equality only.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class _Table:
    """All pieces of one length: sorted hashes, and id and score of each."""

    hashes: Hashes
    ids: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float64]


def fits(header: GgufHeader) -> bool:
    """Whether the file's tokenizer is one this module reproduces, without a character map."""
    return (
        header.architecture == "bert"
        and header.text("tokenizer.ggml.model") == "t5"
        and "tokenizer.ggml.precompiled_charsmap" not in header.arrays
        and header.metadata.get("tokenizer.ggml.add_space_prefix") is True
        and header.metadata.get("tokenizer.ggml.remove_extra_whitespaces") is True
        and header.metadata.get("tokenizer.ggml.add_bos_token") is True
        and header.metadata.get("tokenizer.ggml.add_eos_token") is True
    )


class UnigramTokenizer:
    """Texts to tokens, begin and end tokens included; read-only, so any thread may use it.

    Args:
        header: a file for which ``fits`` holds.

    Raises:
        ModelRejectedError: the tokenizer's arrays do not belong together.
    """

    def __init__(self, header: GgufHeader) -> None:
        scores = np.frombuffer(read_raw(header, "tokenizer.ggml.scores"), dtype="<f4")
        kinds = np.frombuffer(read_raw(header, "tokenizer.ggml.token_type"), dtype="<i4")
        tokens = header.arrays.get("tokenizer.ggml.tokens")
        self.n_vocab = tokens.n_items if tokens is not None else 0
        if not self.n_vocab == len(scores) == len(kinds) or not self.n_vocab:
            raise ModelRejectedError(
                path=str(header.path), cause="the tokenizer's arrays differ in length"
            )
        self._bos = header.number("tokenizer.ggml.bos_token_id")
        self._eos = header.number("tokenizer.ggml.eos_token_id")
        self._unknown = header.number("tokenizer.ggml.unknown_token_id")
        self._unknown_score = float(scores[kinds == _NORMAL].min()) - _UNKNOWN_PENALTY
        usable = np.isin(kinds, (_NORMAL, _USER_DEFINED, _UNUSED))
        values = np.where(kinds == _USER_DEFINED, 0.0, scores.astype(np.float64))
        # Pieces pass one at a time: 250,000 texts at once would leave the heap full of holes.
        by_length: dict[int, tuple[bytearray, array[int]]] = {}
        for token, piece in enumerate(read_texts(header, "tokenizer.ggml.tokens")):
            if piece and usable[token]:
                points, ids = by_length.setdefault(len(piece), (bytearray(), array("i")))
                points += piece.encode("utf-32-le", "replace")
                ids.append(token)
        self._tables = {
            length: _table(header, points, ids, length, values)
            for length, (points, ids) in sorted(by_length.items())
        }

    def tokenize(self, text: str) -> TokenArray:
        """Return the tokens of ``text``: (n,), int32; only U+0020 counts as a space."""
        joined = "".join(_SPACE + word for word in text.split(" ") if word)
        found = self._best(joined) if joined else []
        return np.array([self._bos, *found, self._eos], dtype=np.int32)

    def _best(self, text: str) -> list[int]:
        points = np.frombuffer(text.encode("utf-32-le", "replace"), dtype="<u4").astype(np.uint64)
        n = len(points)
        starts, lengths, ids, scores = self._matches(points)
        best, came_from, token_at = [-np.inf] * (n + 1), [0] * (n + 1), [self._unknown] * (n + 1)
        best[0] = 0.0
        at, n_matches = 0, len(starts)
        for start in range(n):
            here, is_covered = best[start], False
            while at < n_matches and starts[at] == start:
                length = lengths[at]
                is_covered = is_covered or length == 1
                score, end = here + scores[at], start + length
                if score > best[end]:
                    best[end], came_from[end], token_at[end] = score, start, ids[at]
                at += 1
            if not is_covered and here + self._unknown_score > best[start + 1]:
                best[start + 1] = here + self._unknown_score
                came_from[start + 1], token_at[start + 1] = start, self._unknown
        tokens: list[int] = []
        end = n
        while end > 0:
            token = token_at[end]
            if not (token == self._unknown and tokens and tokens[-1] == self._unknown):
                tokens.append(token)
            end = came_from[end]
        return tokens[::-1]

    def _matches(self, points: Hashes) -> tuple[list[int], list[int], list[int], list[float]]:
        """Return start, length, id and score of every piece in the text, by start, then length."""
        starts, lengths, ids, scores = [], [], [], []
        n = len(points)
        hashes = np.zeros(n, dtype=np.uint64)
        done = 0
        for length, table in self._tables.items():
            if length > n:
                break
            for one_more in range(done, length):
                hashes = hashes[: n - one_more] * _MULTIPLIER + points[one_more:]
            done = length
            rows = np.searchsorted(table.hashes, hashes)
            rows[rows == len(table.hashes)] = 0
            hits = np.flatnonzero(table.hashes[rows] == hashes)
            rows = rows[hits]
            starts.append(hits)
            lengths.append(np.full(len(hits), length))
            ids.append(table.ids[rows])
            scores.append(table.scores[rows])
        if not starts:
            return [], [], [], []
        all_starts = np.concatenate(starts)
        order = np.argsort(all_starts, kind="stable")
        return (
            all_starts[order].tolist(),
            np.concatenate(lengths)[order].tolist(),
            np.concatenate(ids)[order].tolist(),
            np.concatenate(scores)[order].tolist(),
        )


def _table(
    header: GgufHeader,
    joined: bytearray,
    tokens: array[int],
    length: int,
    scores: npt.NDArray[np.float64],
) -> _Table:
    points = np.frombuffer(joined, dtype="<u4").reshape(len(tokens), length).astype(np.uint64)
    hashes = np.zeros(len(tokens), dtype=np.uint64)
    for column in range(length):
        hashes = hashes * _MULTIPLIER + points[:, column]
    order = np.argsort(hashes)
    hashes = hashes[order]
    if bool(np.any(hashes[1:] == hashes[:-1])):
        raise ModelRejectedError(path=str(header.path), cause="a tokenizer piece occurs twice")
    ids = np.frombuffer(tokens, dtype=np.int32)[order]
    return _Table(hashes, ids, scores[ids])
