"""Figures as words, the same in every table and on the page."""

from __future__ import annotations

UNKNOWN = "–"


def count_text(value: float | None) -> str:
    """`1,234`."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def number_text(value: float | None, digits: int = 1) -> str:
    """`1,234.5`; a small number keeps two significant digits."""
    if value is None:
        return UNKNOWN
    return f"{value:.2g}" if 0 < abs(value) < 10**-digits else f"{value:,.{digits}f}"


def short_count(value: float | None) -> str:
    """A count in at most six cells: `15,616`, `994k`, `12.3M`."""
    if value is None or value < 100_000:
        return count_text(value)
    size, unit = next((size, unit) for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= size)
    return f"{value / size:.{0 if value >= 100 * size else 1}f}{unit}"


def percent_text(share: float | None) -> str:
    """`12.3%`."""
    return UNKNOWN if share is None else f"{share:.1%}"


def duration_text(seconds: float | None) -> str:
    """`1:02:03`, `4:05`, or `1.2 s`."""
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if seconds >= 10 else f"{seconds:.2g} s"


def size_text(size: float | None) -> str:
    """`12.3 MB`."""
    return UNKNOWN if size is None else f"{size / 1e6:,.1f} MB"


def figure_text(kind: str, value: float | None) -> str:
    """A figure of `treeforge.stats.compare` by its kind."""
    by_kind = {"count": count_text, "share": percent_text, "seconds": duration_text, "bytes": size_text}
    if kind in by_kind:
        return by_kind[kind](value)
    return number_text(value, 2 if value is not None and abs(value) < 10 else 1)
