"""The plots of the page of statistics: what each shows, and what to look for in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treeforge.stats.summary import Summary
from treeforge.stats.vega import (
    Chart,
    Runs,
    amount_axis,
    axis,
    bars,
    binned,
    counted,
    named_axis,
    ordered,
    size_bin,
    specification,
)

_UNITS = ((3600, "hours"), (60, "minutes"), (1, "seconds"))


def charts(names: Sequence[str], summaries: Sequence[Summary]) -> list[Chart]:
    """The plots of some runs; those without data are left out. `names` stand in the legend."""
    runs = list(zip(names, summaries, strict=True))
    return [chart for made in (_outcomes(runs), _trees(runs), _labels(runs), _machine(runs)) for chart in made]


def _outcomes(runs: Runs) -> Iterator[Chart]:
    section = "Problems and completions"
    rows = counted(runs, lambda s: s.problems.by_status)
    yield from bars(
        runs,
        rows,
        section,
        "Problems by status",
        "problems",
        "Failed and exhausted problems should be few; open ones are still to come. Their reasons stand in the table.",
    )
    passes = [
        {"run": name, "k": found.k, "share": found.share, "problems": found.problems}
        for name, summary in runs
        for found in summary.outcomes.pass_at
    ]
    if passes:
        yield Chart(
            section=section,
            title="pass@k",
            look_for="The chance that k completions of a problem hold a right one. A curve that keeps rising says that "
            "more samples still find answers; a flat one, that the rest is beyond this model. Under a search that goes "
            "on where it found right answers, it is too high.",
            spec=specification(passes, "line", x=axis("k", "completions (k)", scale={"type": "log", "base": 2}),
                       y=axis("share", "solved", format="%", scale={"domain": [0, 1]}), runs=runs, point=True),
        )  # fmt: skip
    yield from bars(
        runs,
        counted(runs, lambda s: s.outcomes.by_verdict),
        section,
        "Verdicts",
        "completions",
        "No answer and unparsable count as wrong: where they are many, the prompt or the answer's format is at fault "
        "rather than the reasoning. Undecided ones widen intervals.",
    )
    yield from bars(
        runs,
        counted(runs, lambda s: s.outcomes.by_finish),
        section,
        "How completions ended",
        "completions",
        "More than 5% truncated: raise sampling.max_tokens or search.max_steps. Errors count nowhere, and can be asked "
        "for again.",
    )
    yield from bars(
        runs,
        counted(runs, lambda s: s.checker.routes if s.checker else {}),
        section,
        "Checks by route",
        "checks",
        "How answers were compared. Numeric agreement and sympy are evidence rather than proof; where they are many, "
        "look at `treeforge label --disputed`.",
    )


def _trees(runs: Runs) -> Iterator[Chart]:
    section = "Trees"
    rows = [
        {"run": name, "depth": depth, "nodes": nodes}
        for name, summary in runs
        for depth, nodes in enumerate(summary.trees.nodes_by_depth)
    ]
    yield from ordered(
        runs,
        rows,
        section,
        "Nodes by depth",
        "depth",
        "depth",
        "nodes",
        "nodes",
        "Where the search spent its nodes. A wall at the last depth means that max_depth cuts trees off; a single hump "
        "near the root, that few solutions are followed to their end.",
    )


def _labels(runs: Runs) -> Iterator[Chart]:
    section = "Labels"
    labelled = [(name, summary.labels) for name, summary in runs if summary.labels is not None]
    yield from ordered(
        runs,
        binned(labelled, lambda found: found.value_histogram),
        section,
        "Values",
        "from",
        "value",
        "steps",
        "steps",
        "Peaks at 0 and 1 are steps whose outcomes all agree; in the middle single steps matter. Hardly any middle "
        "means problems that are too easy or too hard.",
        bins=True,
    )
    balance = [
        {"run": name, "depth": row.depth, "share": row.positive / (row.positive + row.negative),
         "steps": row.positive + row.negative}
        for name, found in labelled
        for row in found.by_depth
        if row.positive + row.negative
    ]  # fmt: skip
    if balance:
        yield Chart(
            section=section,
            title="Positive labels by depth",
            look_for="Where this line is steep, a reward model can learn depth instead of correctness. Far from 50% on "
            "the whole: think of `treeforge export --balance` or another threshold. The last depths rest on few steps.",
            spec=specification(balance, "line", x=axis("depth", "depth", whole=True),
                       y=axis("share", "positive", format="%", scale={"domain": [0, 1]}), runs=runs, point=True),
        )  # fmt: skip
    errors = [
        {"run": name, "step": place + 1, "completions": count}
        for name, found in labelled
        for place, count in enumerate(found.first_errors)
    ]
    yield from ordered(
        runs,
        errors,
        section,
        "First errors",
        "step",
        "first negative step",
        "completions",
        "wrong completions",
        "Where wrong solutions go wrong first. All at the first step means that the root's children are judged by too "
        "few outcomes, or that the problems are too hard; late errors are the ones that a process reward model is for.",
    )
    yield from ordered(
        runs,
        binned(labelled, lambda found: found.interval_histogram),
        section,
        "Interval widths",
        "from",
        "width",
        "steps",
        "steps",
        "How well values are known. Steps to the right say next to nothing: more simulations narrow them, or "
        "`treeforge export --max-interval` leaves them out.",
        bins=True,
    )
    used = max((place for _, found in labelled for place, n in enumerate(found.effective_histogram) if n), default=0)
    sizes = [
        {"run": name, "size": size_bin(place), "order": place, "steps": steps}
        for name, found in labelled
        for place, steps in enumerate(found.effective_histogram[: used + 1])
    ]
    if any(row["steps"] for row in sizes):
        outcomes = named_axis("size", "outcomes", order="order")
        yield Chart(
            section=section,
            title="Effective sample sizes",
            look_for="How many independent outcomes a value is worth. Outcomes below one step depend on each other, so "
            "this is less than their number; below 4, a hard label is little better than a guess.",
            spec=specification(sizes, "bar", x=outcomes, y=amount_axis(runs, sizes, "steps", "steps"), runs=runs),
        )
    yield from bars(
        runs,
        counted(runs, lambda s: s.labels.pairs if s.labels else {}),
        section,
        "Kinds of pairs",
        "pairs",
        "Windows of two steps by the labels of the earlier and the later. Negative, then positive: a wrong step was "
        "corrected, which a model of single steps cannot reward.",
    )
    noise = [
        {"run": name, "depth": int(depth), "shift": row["shift_sum"] / row["merges"], "merges": row["merges"]}
        for name, summary in runs
        if summary.compression is not None
        for depth, row in summary.compression.report.get("by_depth", {}).items()
        if row.get("merges")
    ]
    yield from ordered(
        runs,
        noise,
        section,
        "Label noise of HNC",
        "depth",
        "depth of the merged node",
        "shift",
        "mean change of its value",
        "How far a merge moves the value of its node. Large where nodes have few children: min_children or "
        "max_label_shift bounds it.",
    )


def _machine(runs: Runs) -> Iterator[Chart]:
    section = "Machine"
    points = [(name, point) for name, summary in runs if summary.load is not None for point in summary.load.points]
    if len(points) < 2 * len(runs):
        return
    longest = max(point.seconds for _, point in points)
    seconds, unit = next((size, unit) for size, unit in _UNITS if longest >= 2 * size or size == 1)
    load = [
        {"run": name, "time": point.seconds / seconds, "in_flight": point.in_flight, "tokens": point.tokens_per_second}
        for name, point in points
    ]
    time = axis("time", f"{unit} of work")
    yield Chart(
        section=section,
        title="Requests in flight",
        look_for="Should be flat at machine.concurrency until the last trees. Dips: the policy waits for trees (raise "
        "machine.open_trees), a long tail is a few large trees at the end.",
        spec=specification(load, "line", x=time, y=axis("in_flight", "requests"), runs=runs),
    )
    yield Chart(
        section=section,
        title="Tokens a second",
        look_for="Should follow the requests in flight. Falling at the same number of requests: longer prompts, or a "
        "server that slows down.",
        spec=specification(load, "line", x=time, y=axis("tokens", "tokens/s"), runs=runs),
    )
