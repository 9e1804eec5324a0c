"""Duplicates: rows of one problem with the same text, exactly or nearly, and problems with the same question.

Near duplicates share most of their character 5-grams (Jaccard similarity). MinHash with banding (Broder 1997; Leskovec
et al., Mining of Massive Datasets, Section 3.4) finds the candidates, and the exact similarity decides, so that nothing
is dropped by chance. Texts are compared within a problem only, so memory holds one problem's.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.export.formats import Format, Rows
from treeforge.hashing import digest, encode_text

_GRAM = 5
_BANDS, _BAND_ROWS = 16, 4
"""A pair with similarity 0.85 shares one of the bands with probability 0.9999."""

_SPACE, _PUNCTUATION = re.compile(r"\s+"), re.compile(r"[.,;:!?\"'`$]+(?=\s|$)")
_MULTIPLIERS = np.random.Generator(np.random.PCG64(5)).integers(
    1, 2**63, 2 * _BANDS * _BAND_ROWS, np.uint64
) | np.uint64(1)
_POWERS = np.array([pow(0x9E3779B97F4A7C15, i, 2**64) for i in range(_GRAM)], dtype=np.uint64)


def normalise(text: str) -> str:
    """Case, white space and the punctuation at the end of words do not count; numbers and operators do."""
    return _SPACE.sub(" ", _PUNCTUATION.sub("", text.lower())).strip()


class Duplicates:
    """The texts of one problem's rows of one format that were kept so far."""

    def __init__(self, format: Format, near: float | None) -> None:
        self._format, self._near = format, near
        self._start(-1)

    def _start(self, number: int) -> None:
        self._number = number
        self._exact: set[bytes] = set()
        self._buckets: dict[tuple[Hashable, ...], list[NDArray[np.uint64]]] = {}

    def keep(self, rows: Rows) -> Rows:
        """The rows that repeat no earlier one of their problem; a problem's rows come together."""
        format = self._format
        groups = zip(*(_values(rows.columns[name]) for name in format.same), strict=True) if format.same else None
        numbers = [self._number] * rows.count if rows.numbers is None else rows.numbers.tolist()
        mask = np.zeros(rows.count, dtype=np.bool_)
        for row, (number, value) in enumerate(zip(numbers, _values(rows.columns[format.text]), strict=True)):
            if number != self._number:
                self._start(number)
            group = repr(next(groups)) if groups is not None else ""
            mask[row] = self._is_new(group, normalise(_flat(value)))
        return rows.keep(mask)

    def _is_new(self, group: str, text: str) -> bool:
        key = digest(encode_text(group), encode_text(text))
        if key in self._exact:
            return False
        if self._near is not None:
            grams = _grams(text)
            bands = [(group, band, *signature) for band, signature in enumerate(_signature(grams))]
            if any(_jaccard(grams, other) >= self._near for band in bands for other in self._buckets.get(band, ())):
                return False
            for band in bands:
                self._buckets.setdefault(band, []).append(grams)
        self._exact.add(key)
        return True


class Questions:
    """The questions seen so far: 16 bytes each."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def is_new(self, question: str) -> bool:
        """Whether no earlier question is the same but for case, white space and punctuation."""
        key = digest(encode_text(normalise(question)))
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


def _values(column: Any) -> Sequence[Any]:
    listed = isinstance(column, np.ndarray | pa.Array)
    values: Sequence[Any] = column.tolist() if listed else column
    return values


def _flat(value: Any) -> str:
    """All texts of a value, whatever its shape."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(map(_flat, value.values()))
    if isinstance(value, list | tuple):
        return " ".join(map(_flat, value))
    return str(value)


def _grams(text: str) -> NDArray[np.uint64]:
    """The different hashed 5-grams of the text's UTF-8 bytes, sorted; of a shorter text the text itself."""
    data = np.frombuffer(encode_text(text).ljust(_GRAM), dtype=np.uint8).astype(np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(data, _GRAM)
    return np.unique(_mix((windows * _POWERS).sum(axis=1, dtype=np.uint64)))


def _signature(grams: NDArray[np.uint64]) -> list[tuple[int, ...]]:
    """For each band the least hashes of the grams under its hash functions."""
    half = len(_MULTIPLIERS) // 2
    hashes = _mix(grams[None, :] * _MULTIPLIERS[:half, None] + _MULTIPLIERS[half:, None]).min(axis=1)
    return [tuple(band) for band in hashes.reshape(_BANDS, _BAND_ROWS).tolist()]


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: every bit of the input moves about half of the output's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _jaccard(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> float:
    common = np.intersect1d(a, b, assume_unique=True).size
    return common / (a.size + b.size - common)
