"""What counts as the same answer where reasonable people disagree: a config with named presets."""

from __future__ import annotations

from typing import Literal

from treeforge.config import Config
from treeforge.errors import ConfigError

Place = Literal["boxes", "markers", "hashes", "heading", "phrases", "bare", "last"]

EXTRACTION: tuple[Place, ...] = ("boxes", "markers", "hashes", "heading", "phrases", "bare", "last")
"""Where an answer is looked for, in this order. Boxes; the step format's markers; `####`; a heading of its own; *the
answer is* and its like; the whole text where it is a bare answer; the last mathematics or number."""


class CheckPolicy(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How answers of different form compare. The table in `docs/labels.md` explains every field with examples."""

    name: str = "custom"
    """The preset's name, or `custom`."""
    percent: Literal["value", "either"] = "either"
    """`value`: 50% is 0.5 and nothing else. `either`: a sign on one side only may also have been left out (50)."""
    units: Literal["exact", "optional"] = "optional"
    """`optional`: a unit may be left out on one side; two known units must be the same size. `exact`: both or none."""
    base: Literal["exact", "optional"] = "optional"
    """`optional`: 52 for 52_8 (same digits). Two different bases never agree."""
    lists: Literal["ordered", "unordered"] = "unordered"
    """Whether the order of a bare list `1, 2` counts; parentheses are always ordered, braces never."""
    bare_tuple: bool = True
    """Whether a bare list may stand for a tuple, in order: `1, 2` for `(1, 2)`."""
    names: Literal["exact", "optional"] = "optional"
    """`optional`: `x = 5` for 5, `x ∈ S` for S."""
    brackets: Literal["exact", "loose"] = "exact"
    """`loose`: `[1, 2]` for `(1, 2)`."""
    decimal_digits: int = 4
    """A decimal of at least this many significant digits may stand for the exact value that rounds to it; 0: never."""
    relations_as_sets: bool = True
    """Whether `x < 3` and `(-∞, 3)` are the same answer."""
    text_case: Literal["exact", "fold"] = "fold"
    """Whether capitals count in words."""
    extraction: tuple[Place, ...] = EXTRACTION
    """Where an answer is looked for in a solution, the first place first; what is left out is not looked at."""

    def __post_init__(self) -> None:
        if self.decimal_digits < 0:
            raise ValueError("decimal_digits must not be negative")
        if not self.extraction or len(set(self.extraction)) != len(self.extraction):
            raise ValueError(f"extraction must name some of {', '.join(EXTRACTION)}, each once")


PRESETS: dict[str, CheckPolicy] = {
    "default": CheckPolicy(name="default"),
    "strict": CheckPolicy(
        name="strict",
        percent="value",
        units="exact",
        base="exact",
        bare_tuple=False,
        names="exact",
        decimal_digits=0,
        relations_as_sets=False,
        text_case="exact",
    ),
    "math-verify-like": CheckPolicy(name="math-verify-like", base="exact", lists="unordered"),
    "prm800k": CheckPolicy(name="prm800k", lists="ordered", decimal_digits=0, relations_as_sets=False),
}


def check_policy(policy: CheckPolicy | str) -> CheckPolicy:
    """A preset by its name; a policy as it is. `ConfigError` names the presets."""
    if isinstance(policy, CheckPolicy):
        return policy
    try:
        return PRESETS[policy]
    except KeyError:
        raise ConfigError(f"no check policy is named '{policy}'; the presets are {', '.join(PRESETS)}") from None
