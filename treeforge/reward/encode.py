"""Windows as token ids, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treeforge.errors import ConfigError
from treeforge.reward.base import Window
from treeforge.reward.prompts import RIGHT, WRONG, parts


class Encoder:
    """Turns windows into token ids, at most `window` of them.

    What is too long loses the beginning of what stands before the step, then of the question, then of the step. Special
    tokens that stand in a text are read as plain text. Its parts are tokenised one by one, so that a step's tokens are
    the same whatever stands before it.
    """

    def __init__(self, tokenizer: Any, window: int, *, ask: bool = False) -> None:
        """`ask`: end with the question that the head `token` answers."""
        self._tokenizer, self._window, self._ask = tokenizer, window, ask
        first = tokenizer("a")["input_ids"][:1]
        self._start: list[int] = [tokenizer.bos_token_id] if first == [tokenizer.bos_token_id] else []

    def encode(self, windows: Sequence[Window]) -> list[tuple[list[int], bool]]:
        """The token ids of each window, and whether it was cut."""
        texts = [part for window in windows for part in parts(window, ask=self._ask)]
        if not texts:
            return []
        ids = self._tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [self._fitted(*ids[place : place + 3]) for place in range(0, len(ids), 3)]

    def _fitted(self, question: list[int], previous: list[int], current: list[int]) -> tuple[list[int], bool]:
        room = self._window - len(self._start)
        whole = len(question) + len(previous) + len(current)
        current = _last(current, room)
        question = _last(question, room - len(current))
        previous = _last(previous, room - len(current) - len(question))
        return self._start + question + previous + current, whole > room


def _last(ids: list[int], count: int) -> list[int]:
    return ids[max(0, len(ids) - count) :]


def pad_token(tokenizer: Any, name: str) -> int:
    """The id that fills up shorter rows of a batch; the end of text's where the tokenizer has none for it."""
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ConfigError(f"{name}: its tokenizer has neither a pad nor an end-of-text token; add one to it")
        tokenizer.pad_token = tokenizer.eos_token
    return int(tokenizer.pad_token_id)


def verdict_tokens(tokenizer: Any, name: str) -> tuple[int, int]:
    """The ids of `WRONG` and `RIGHT`, each one token."""
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (WRONG, RIGHT)]
    if any(len(found) != 1 for found in ids) or ids[0] == ids[1]:
        raise ConfigError(f"{name}: its tokenizer has no token of its own for {WRONG} or {RIGHT}; take another --head")
    return ids[0][0], ids[1][0]


def padded(rows: Sequence[Sequence[int]], pad: int) -> dict[str, Any]:
    """A batch of torch tensors, int64[rows, longest]: padded on the left, so that each row's last token is last."""
    import torch

    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for place, row in enumerate(rows):
        ids[place, longest - len(row) :] = torch.tensor(row, dtype=torch.long)
        mask[place, longest - len(row) :] = 1
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0),
    }
