"""Decontamination: problems that share an n-gram of words with a question of a benchmark."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treeforge.errors import DataError
from treeforge.store.problems import QUESTION_FIELDS
from treeforge.store.rows import read_rows

_WORD = re.compile(r"\w+")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FIX = f"The column must be one of {', '.join(QUESTION_FIELDS)}"


class Benchmarks:
    """The n-grams of the questions of some files. Case and punctuation do not count.

    A question of fewer than n words is contaminated by a benchmark question that has just the same words. In memory are
    8 bytes an n-gram. A hash is enough: two of 64 bits hardly ever agree.
    """

    def __init__(self, files: Sequence[str], n: int) -> None:
        self._n = n
        self._grams = [(Path(file).name, self._of_file(file)) for file in files]

    def source(self, question: str) -> str | None:
        """The name of the first file that the question shares an n-gram with; None: of none."""
        grams = self._of(question)
        return next((name for name, known in self._grams if _any_in(grams, known)), None)

    def _of_file(self, file: str) -> NDArray[np.uint64]:
        """uint64[n-grams of the file]: their hashes, ascending, each once."""
        found = array("Q")
        for question in _questions(file):
            found.frombytes(self._of(question).tobytes())
        grams = np.frombuffer(found, dtype=np.uint64)
        grams.sort()
        once: NDArray[np.uint64] = grams[np.diff(grams, prepend=~grams[:1]) != 0]
        return once

    def _of(self, question: str) -> NDArray[np.uint64]:
        """uint64[n-grams of a text]: their hashes, polynomials of the words' own."""
        words = _WORD.findall(question.lower())
        hashes = np.fromiter(map(hash, words), np.int64, len(words)).view(np.uint64)
        size = min(self._n, len(words))
        grams = np.full(len(words) - size + 1 if words else 0, size, dtype=np.uint64)
        for start in range(size):
            grams *= _FACTOR
            grams += hashes[start : start + len(grams)]
        return grams


def _any_in(grams: NDArray[np.uint64], known: NDArray[np.uint64]) -> bool:
    if not len(known):
        return False
    places = np.minimum(np.searchsorted(known, grams), len(known) - 1)
    return bool(np.any(known[places] == grams))


def _questions(file: str) -> Iterator[str]:
    """The questions of a file. `DataError` where there is none, or one is no text."""
    some, names = False, None
    with closing(read_rows(file)) as rows:
        for line, row in rows:
            if isinstance(row, DataError):
                raise DataError(row.problem, path=file, line=line, field=row.field, fix=row.fix)
            fields = {name.lower(): value for name, value in row.items()}
            names = names or sorted(row)
            given = [(name, fields[name]) for name in QUESTION_FIELDS if fields.get(name) is not None]
            question = next((value for _, value in given if isinstance(value, str)), None)
            if question is not None:
                some = True
                yield question
            elif given:
                name, value = given[0]
                raise DataError(
                    f"a question must be text, not {type(value).__name__}", path=file, line=line, field=name
                )
    if names is None:
        raise DataError("is empty: a benchmark needs at least one question", path=file)
    if not some:
        raise DataError(f"holds no question; it has {', '.join(names)[:200]}", path=file, fix=_FIX)
