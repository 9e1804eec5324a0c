"""Decontamination: problems that share an n-gram of words with a question of a benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from treeforge.errors import DataError
from treeforge.store.problems import QUESTION_FIELDS
from treeforge.store.rows import read_rows

_WORD = re.compile(r"\w+")


class Benchmarks:
    """The n-grams of the questions of some files. Case and punctuation do not count.

    A question of fewer than n words is contaminated by a benchmark question that has just the same words.
    """

    def __init__(self, files: Sequence[str], n: int) -> None:
        self._n = n
        self._grams: dict[int, str] = {}
        """Hash of an n-gram -> the file it came from first. A hash is enough: two of 64 bits hardly ever agree."""
        for file in files:
            name, some = Path(file).name, False
            for question in _questions(file):
                some = True
                for gram in self._of(question):
                    self._grams.setdefault(gram, name)
            if not some:
                raise DataError(
                    "holds no question", path=file, fix=f"The column must be one of {', '.join(QUESTION_FIELDS)}"
                )

    def source(self, question: str) -> str | None:
        """The name of the file that the question shares an n-gram with; None: of none."""
        return next((self._grams[gram] for gram in self._of(question) if gram in self._grams), None)

    def _of(self, question: str) -> Iterator[int]:
        words = _WORD.findall(question.lower())
        if not words:
            return
        for start in range(max(len(words) - self._n, 0) + 1):
            yield hash(tuple(words[start : start + self._n]))


def _questions(file: str) -> Iterator[str]:
    with closing(read_rows(file)) as rows:
        for line, row in rows:
            if isinstance(row, DataError):
                raise DataError(row.problem, path=file, line=line, field=row.field, fix=row.fix)
            fields = {name.lower(): value for name, value in row.items()}
            question = next((fields[name] for name in QUESTION_FIELDS if isinstance(fields.get(name), str)), None)
            if question is not None:
                yield question
