"""Token ids of prefixes, kept as they were sampled, so that a prefix never gets other tokens than its cache has.

A text can be cut into tokens in several ways, and a model does not always write the way in which its tokenizer reads.
A prefix that is tokenised anew then has other ids than those in the engine's prefix cache, which misses, and the model
continues another sequence than it wrote.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from treeforge.config import StepsConfig
from treeforge.hashing import chain, digest, encode_text
from treeforge.policy.prompts import render
from treeforge.policy.steps import clean_text, split_steps

REMEMBERED = 500_000
"""Steps and prompts whose ids are kept, the last used ones: some 100 MB."""

Encode = Callable[[str, bool], list[int]]
"""(text, as the start of a prompt: with the special tokens that belong there) -> token ids."""


class PrefixTokens:
    """Token ids of a prompt and the steps so far.

    A step that was sampled here has the ids that were sampled first. Any other step is tokenised by itself: one of
    an earlier sitting (the journal holds text), one that was forgotten, and one whose first or last token reaches
    across its end, which cannot be cut. Where a tokenizer does not allow that (`composes` is false: SentencePiece adds
    a space to a text's start), the whole prefix is tokenised anew instead.
    """

    def __init__(self, steps: StepsConfig, encode: Encode, *, composes: bool, remembered: int = REMEMBERED) -> None:
        self._steps, self._encode, self._composes, self._most = steps, encode, composes, remembered
        self._known: OrderedDict[bytes, array[int]] = OrderedDict()

    def tokens(self, question: str, prefix: str) -> tuple[list[int], bytes]:
        """The ids of the whole prompt, and the key of this prefix for `remember`."""
        key = digest(encode_text(question))
        known = self._find(key)
        ids = list(self._add(key, self._prompt(question, "")) if known is None else known)
        whole = False
        for step in split_steps(clean_text(prefix), self._steps.delimiter):
            key = chain(key, step)
            known = self._find(key)
            if known is not None:
                ids += known
            elif self._composes:
                ids += self._add(key, self._encode(step, False))
            else:
                whole = True
        return (self._prompt(question, prefix) if whole else ids), key

    def remember(self, key: bytes, text: str, ids: Sequence[int], starts: Sequence[int]) -> None:
        """Take in the ids of the steps of a completion of the prefix with this key.

        `starts[i]`: where in `text` token i starts; one entry more, for the end of the last token.
        """
        begin = 0
        for step in split_steps(text, self._steps.delimiter):
            key = chain(key, step)
            end = begin + len(step)
            first, last = bisect_left(starts, begin), bisect_left(starts, end)
            if key not in self._known and last < len(starts) and (starts[first], starts[last]) == (begin, end):
                self._add(key, ids[first:last])
            begin = end

    def _prompt(self, question: str, prefix: str) -> list[int]:
        return self._encode(clean_text(render(self._steps, question, prefix)), True)

    def _find(self, key: bytes) -> array[int] | None:
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    def _add(self, key: bytes, ids: Sequence[int]) -> array[int]:
        known = self._known[key] = array("I", ids)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return known


def tokens_by_step(steps: Sequence[str], starts: Sequence[int]) -> list[tuple[int, int]]:
    """For each step the range [first, last) of its tokens, where token i starts at `starts[i]` (its end is the last).

    A token belongs to the step in which it starts; what follows the text (stop string, end of text) to the last step.
    """
    if not steps:
        return []
    cuts = [0, *(bisect_left(starts, end) for end in accumulate(map(len, steps[:-1]))), len(starts) - 1]
    return list(pairwise(cuts))
