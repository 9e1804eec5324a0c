"""What all configs share: the base class, and checks of their values."""

from __future__ import annotations

import math

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """Base of all configs: immutable, keyword-only, unknown keys refused."""


INT64 = range(-(2**63), 2**63)
"""Whole numbers that files, databases and digests can hold."""


def positive(config: Config, *names: str) -> None:
    """Raise `ValueError` unless these fields are finite and greater than 0."""
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise ValueError(f"{name} must be greater than 0, not {getattr(config, name)!r}")


def not_negative(config: Config, *names: str) -> None:
    """Raise `ValueError` unless these fields are finite and at least 0."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must not be negative{'' if value < 0 else ' or infinite'}, not {value!r}")


def fits_64_bits(config: object, *names: str) -> None:
    """Raise `ValueError` unless these whole numbers fit in 64 bits with their sign."""
    for name in names:
        if getattr(config, name) not in INT64:
            raise ValueError(f"{name} must fit in 64 bits, not {getattr(config, name)}")


def countable(config: Config, *names: str) -> None:
    """Raise `ValueError` unless these numbers are below 2^31: more rows or outcomes than anybody has."""
    for name in names:
        if not getattr(config, name) < 2**31:
            raise ValueError(f"{name} must be less than 2^31, not {getattr(config, name)!r}")


def at_most_one(config: Config, *names: str) -> None:
    """Raise `ValueError` unless these fields are at most 1."""
    for name in names:
        if not getattr(config, name) <= 1:
            raise ValueError(f"{name} must be at most 1, not {getattr(config, name)!r}")
