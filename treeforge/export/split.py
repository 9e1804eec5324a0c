"""Splits by problem: never one problem in two, and more problems move nobody."""

from __future__ import annotations

from typing import Literal

from treeforge.config import ExportConfig
from treeforge.hashing import digest, encode_text

Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def split_of(problem_id: str, config: ExportConfig) -> Split:
    """The split of a problem: a function of its id and the two shares only.

    The id's digest is a point in [0, 1). `test` is taken from the lower end and `validation` from the upper one, so
    that changing one share moves problems between that split and `train`, never between the two.
    """
    point = int.from_bytes(digest(b"split", encode_text(problem_id))[:8], "big") / 2**64
    if point < config.test_share:
        return "test"
    if point >= 1 - config.validation_share:
        return "validation"
    return "train"
