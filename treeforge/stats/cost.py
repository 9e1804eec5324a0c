"""What a run cost: from its journal and its log, in tokens, time and money."""

from __future__ import annotations

import msgspec
import polars as pl

from treeforge.errors import ConfigError
from treeforge.stats.effort import Cost
from treeforge.stats.sittings import Sittings
from treeforge.store.journal import Journal, JournalTotals
from treeforge.store.run import RunFolder


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What the model's work is paid by: tokens, or GPU hours. In your currency."""

    per_million: float | None = None
    """Price of a million sampled tokens."""
    gpu_hour: float | None = None
    """Price of an hour of one GPU."""
    gpu_hours: float | None = None
    """Hours of all GPUs together; the wall time of all sittings, of one GPU, where it is not given."""

    def __post_init__(self) -> None:
        if self.per_million is not None and self.gpu_hour is not None:
            raise ConfigError("give either --price-per-million or --gpu-price: a run is paid by tokens or by the hour")
        if self.gpu_hours is not None and self.gpu_hour is None:
            raise ConfigError("--gpu-hours needs --gpu-price, the price of an hour of one GPU")

    def of(self, tokens: int | None, seconds: float | None) -> float | None:
        """The price of a run; None where it is not known."""
        if self.per_million is not None:
            return None if tokens is None else self.per_million * tokens / 1e6
        if self.gpu_hour is None:
            return None
        hours = self.gpu_hours if self.gpu_hours is not None else None if seconds is None else seconds / 3600
        return None if hours is None else self.gpu_hour * hours


class Spending(msgspec.Struct, frozen=True):
    """What a run's journal says."""

    totals: JournalTotals
    by_tree: dict[int, int]
    """Sampled tokens by tree_id."""


def spending(run: RunFolder) -> Spending | None:
    """None for a run without a journal. Raises `StorageError` where it is damaged."""
    file = run.path / "journal.sqlite"
    if not file.exists():
        return None
    journal = Journal.open(file, read_only=True)
    try:
        return Spending(journal.totals(), journal.tokens_by_tree())
    finally:
        journal.close()


def cost(
    spent: Spending | None,
    per_tree: pl.DataFrame,
    *,
    labelled: int,
    correct: int,
    time: Sittings | None,
    prices: Prices,
) -> Cost:
    """The section of the summary. `per_tree`: the rows of `treeforge.stats.trees.sizes`."""
    totals = spent.totals if spent else None
    paid = sum(spent.by_tree.get(tree, 0) for tree in per_tree["tree_id"]) if spent else None
    steps = int(per_tree["nodes"].sum()) - len(per_tree)
    price = prices.of(totals.tokens if totals else None, time.seconds if time else None)
    return Cost(
        requests=totals.requests if totals else None,
        completions=totals.completions if totals else None,
        tokens=totals.tokens if totals else None,
        failed_requests=totals.failed if totals else None,
        journal_bytes=totals.bytes if totals else None,
        tokens_per_node=share(paid, steps),
        tokens_per_label=share(paid, labelled),
        tokens_per_correct=share(paid, correct),
        sittings=time.sittings if time else None,
        seconds=time.seconds if time else None,
        tokens_per_second=share(time.tokens, time.seconds) if time else None,
        prompt_tokens=time.prompt_tokens if time else None,
        cached_share=share(time.cached_tokens or 0, time.prompt_tokens or 0) if time else None,
        price=price,
        price_per_label=share(price, labelled),
        price_per_correct=share(price, correct),
    )


def share(part: float | None, whole: float) -> float | None:
    """part / whole; None where nothing was counted."""
    return float(part / whole) if whole and part is not None else None
