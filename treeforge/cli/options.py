"""Options that several commands share, and what they have in common: progress and the closing words."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from treeforge.config import Machine
    from treeforge.pilot import Estimate
    from treeforge.pipeline import RunResult
    from treeforge.reward.score import StepScorer
    from treeforge.search.progress import Progress
    from treeforge.store.problems import BadRow
    from treeforge.views import ExportSummary

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.", show_default=False)]
Solutions = Annotated[
    str,
    typer.Argument(
        metavar="SOLUTIONS",
        help="JSONL, JSON, CSV or Parquet file, or hf://owner/name; a folder, for hrm-pickle.",
        show_default=False,
    ),
]
SolutionFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="prm800k, math-shepherd, prm, processbench, openr, rest-mcts or hrm-pickle; plain rows if not given.",
    ),
]
GoodRows = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N good rows.")]
SolutionField = Annotated[
    str | None, typer.Option("--solution-field", help="Field of the solution: a text, its steps, or several.")
]
Config = Annotated[Path | None, typer.Option("--config", help="A TOML file with any of the configuration's sections.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key, as in search.wave=8. May be repeated."),
]
Concurrency = Annotated[int | None, typer.Option("--concurrency", min=1, help="Requests in flight at once.")]
Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="URL", help="Base URL of an OpenAI-compatible server. May be repeated."),
]
ServersFile = Annotated[
    Path | None,
    typer.Option("--servers-file", metavar="FILE", help="Such URLs, one a line; may change while the run goes on."),
]
Preset = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="Check policy: default, strict, math-verify-like or prm800k."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A name of `treeforge models list`, a GGUF file, hf://OWNER/NAME/FILE.gguf@REVISION, or the server's "
        "model name.",
    ),
]
StepPreset = Annotated[
    str | None, typer.Option("--preset", help="Step format: smollm, qwen-chat, qwen-math, hrm-paper.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="The run seed.")]
Replicas = Annotated[
    int | None,
    typer.Option("--replicas", min=1, help="--policy vllm: start so many servers, each on a GPU of its own."),
]
QuestionField = Annotated[str | None, typer.Option("--question-field", help="Field of the question.")]
AnswerField = Annotated[str | None, typer.Option("--answer-field", help="Field of the gold answer.")]
IdField = Annotated[str | None, typer.Option("--id-field", help="Field of the problem's id.")]
SkipBadRows = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and list them.")]
STEP_TAG = "ки"
Tag = Annotated[
    str | None,
    typer.Option("--tag", help=f"math-shepherd: what stands after each step; {STEP_TAG} if not given."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Grow a pilot only, and say what the whole run would ask for and cost.")
]
Pilot = Annotated[float, typer.Option("--pilot", min=0.0, max=1.0, help="The pilot's share of the problems.")]
Price = Annotated[
    float | None, typer.Option("--price", min=0.0, help="Price of a million sampled tokens.", show_default=False)
]
Reward = Annotated[
    str | None,
    typer.Option(
        "--reward",
        metavar="PLACE",
        help="--strategy beam: rank by this reward model, a folder of `treeforge train` or http://HOST:PORT?folder=….",
    ),
]
Aggregate = Annotated[
    str | None,
    typer.Option(
        "--aggregate",
        help="How the scores of steps become one: min, product, mean, last or hierarchical; if not given, "
        "hierarchical for an hrm, min for a prm.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def machine_overrides(
    concurrency: int | None, servers: list[str] | None, servers_file: Path | None = None
) -> list[str]:
    """The `machine.*` overrides of the common flags. Servers from one place take those of another one away."""
    import json

    overrides: list[str] = []
    if concurrency is not None:
        overrides.append(f"machine.concurrency={concurrency}")
    if servers:
        overrides.append("machine.servers=[" + ", ".join(f"'{url}'" for url in servers) + "]")
    if servers_file is not None:
        overrides.append(f"machine.servers_file={json.dumps(str(servers_file))}")
    if servers and servers_file is None:
        overrides.append("machine.servers_file=''")
    if servers_file is not None and not servers:
        overrides.append("machine.servers=[]")
    return overrides


def named_overrides(named: Mapping[str, object]) -> list[str]:
    """Overrides of keys for which a flag was given (not None)."""
    return [f"{key}={value}" for key, value in named.items() if value is not None]


def scorer_of(reward: str | None, aggregate: str | None, strategy: str | None = None) -> StepScorer | None:
    """What `--reward` and `--aggregate` name; `strategy` is refused where it ranks nothing."""
    from treeforge.errors import ConfigError

    if reward is None:
        if aggregate is not None:
            raise ConfigError("--aggregate is for the scores of a reward model; name it by --reward")
        return None
    if strategy is not None and strategy != "beam":
        raise ConfigError(f"--reward ranks the candidates of --strategy beam, not of {strategy}")
    from treeforge.reward.base import check_aggregate
    from treeforge.reward.score import StepScorer, load_reward_model

    how = None if aggregate is None else check_aggregate(aggregate)
    return StepScorer(load_reward_model(reward), how)


def check_written(option: str, file: Path, *read: str | None) -> None:
    """`ConfigError` for a file that could not be written in the end, or that this command reads."""
    from treeforge.errors import ConfigError

    if file.is_dir():
        raise ConfigError(f"{option}: {file} is a folder; name a file")
    if file.exists() and any(name and Path(name).exists() and file.samefile(name) for name in read):
        raise ConfigError(f"{option}: {file} is read by this command; name another file")


def check_of_format(format: str | None, given: Mapping[str, tuple[object, str]]) -> None:
    """`ConfigError` where an option was given that only another format has. By option its value and that format."""
    from treeforge.errors import ConfigError

    for option, (value, of) in given.items():
        if value is not None and format != of:
            what = "plain rows have none" if format is None else f"{format} has none"
            raise ConfigError(f"{option} is for --format {of}; {what}, so leave it out")


def print_skipped(path: str, skipped: Iterable[BadRow]) -> None:
    """Say on stderr which rows of a file were left out, and why."""
    for row in skipped:
        field = f"field '{row.field}' " if row.field else ""
        where = f"{path}:{row.line}" if row.line else path
        typer.echo(f"skipped {where}: {field}{row.why}. {row.fix}", err=True)


def source_name(path: str) -> str:
    """What the manifest and the card, which is published, say of an input file: its name, not where it lay."""
    return path if "://" in path else Path(path).name


def machine_for(path: Path, file: Path | None, overrides: list[str]) -> Machine:
    """The machine half of an existing run, with what a file and overrides change; another recipe is refused."""
    from treeforge.configuration import load
    from treeforge.manifest import check_recipe
    from treeforge.store.run import RunFolder

    folder = RunFolder.open(path)
    base = {key: folder.manifest[key] for key in ("recipe", "machine", "label", "compress", "export")}
    config = load(file, overrides, base=base)
    check_recipe(folder, config.recipe, None)
    return config.machine


def check_page_file(option: str, file: Path, runs: Sequence[Path]) -> None:
    """`ConfigError` where a page would take the place of a file of a run that is no page."""
    from treeforge.errors import ConfigError

    place = file.resolve()
    if place.is_file() and place.suffix.lower() not in (".html", ".htm"):
        for run in runs:
            if run.resolve() in place.parents:
                raise ConfigError(f"{option}: {file} is a file of the run; name another one, as page.html")


@contextmanager
def progress_line(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that shows progress on stderr: one line in place on a terminal, a line every ten seconds elsewhere."""
    if quiet:
        yield None
        return
    terminal = sys.stderr.isatty()
    started = time.monotonic()
    finished_before: int | None = None
    last = 0.0 if terminal else started

    def show(progress: Progress) -> None:
        nonlocal last, finished_before
        now = time.monotonic()
        if finished_before is None:
            finished_before = progress.finished
        if now - last < (0.2 if terminal else 10.0):
            return
        last = now
        line = progress_text(progress, now - started, finished_before)
        sys.stderr.write(f"\r\x1b[2K{line}" if terminal else line + "\n")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if terminal:
            sys.stderr.write("\n")


def progress_text(progress: Progress, seconds: float, finished_before: int) -> str:
    """Trees done, completions/s, tokens/s, share of prompts from the prefix cache, share correct, time left."""
    seconds = max(seconds, 1e-9)
    done = progress.finished - finished_before
    left = (progress.trees - progress.finished) * seconds / done if done else None
    share = f"{progress.correct / progress.judged:.0%}" if progress.judged else "–"
    parts = [
        f"{progress.finished}/{progress.trees} trees",
        f"{progress.completions / seconds:.1f} completions/s",
        f"{progress.tokens / seconds:.0f} tokens/s",
        f"{share} correct",
        f"{progress.in_flight} in flight",
        "ETA " + ("–" if left is None else _duration(left)),
    ]
    if progress.prompt_tokens:
        parts.insert(3, f"{_cached_share(progress):.0%} of prompts from cache")
    if progress.replayed:
        parts.insert(1, f"{progress.replayed} requests from the journal")
    if progress.retries:
        parts.append(f"{progress.retries} retries")
    return " · ".join(parts)


def _cached_share(progress: Progress) -> float:
    return (progress.cached_tokens or 0) / (progress.prompt_tokens or 1)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def print_result(result: RunResult, as_json: bool) -> None:
    """How a run ended: statuses, where the shards are, and the lines that load them."""
    import msgspec

    dataset = result.dataset
    if as_json:
        data: dict[str, Any] = {
            "run": str(result.path),
            "statuses": result.statuses,
            "progress": msgspec.to_builtins(result.progress),
            "dataset": None if dataset is None else {"path": str(dataset.path), "rows": dataset.rows},
        }
        print_json(data)
        return
    typer.echo(f"{result.path}: " + ", ".join(f"{count} {status}" for status, count in sorted(result.statuses.items())))
    progress = result.progress
    if progress.prompt_tokens:
        typer.echo(
            f"  {progress.tokens:,} tokens, {progress.tokens / max(progress.search_seconds, 1e-9):,.0f} a second; "
            f"{_cached_share(progress):.1%} of {progress.prompt_tokens:,} prompt tokens from the prefix cache"
        )
    if dataset is None:
        typer.echo("No tree could be labelled, so there is nothing to export. `treeforge stats` says why.")
        return
    print_dataset(dataset)


def print_estimate(found: Estimate, as_json: bool) -> None:
    """What a run would come to, a line each with its interval."""
    if as_json:
        print_json(found)
        return
    typer.echo(f"Pilot of {found.pilot_problems} of {found.problems} problems; {found.confidence:.0%} intervals.")
    typer.echo("The whole run:")
    rows = {"requests": found.requests, "completions": found.completions, "sampled tokens": found.tokens}
    for name, range_ in rows.items():
        typer.echo(f"  {name:<15} {range_.value:,.0f}  ({range_.low:,.0f} to {range_.high:,.0f})")
    if (time_ := found.seconds) is not None:
        parts = [_duration(seconds) for seconds in (time_.value, time_.low, time_.high)]
        typer.echo(f"  {'time':<15} {parts[0]}  ({parts[1]} to {parts[2]}), at the pilot's speed or faster")
    if (cost := found.cost) is not None:
        typer.echo(f"  {'cost':<15} {cost.value:,.2f}  ({cost.low:,.2f} to {cost.high:,.2f})")
    typer.echo("The pilot's trees are kept: the same command without --dry-run goes on from them.")


def print_json(data: object) -> None:
    """Print structs and plain data as JSON for a script.

    In ASCII: what a model wrote may hold control and bidi characters, which no terminal should see, and an argument
    that is no UTF-8 holds lone surrogates, which only escapes can carry.
    """
    import json

    import msgspec

    typer.echo(json.dumps(msgspec.to_builtins(data)))


def print_dataset(dataset: ExportSummary) -> None:
    """Where the shards are, their rows, and the three lines that load them."""
    for name, splits in dataset.rows.items():
        typer.echo(
            f"  {name}: " + (", ".join(f"{rows:,} rows in {split}" for split, rows in splits.items()) or "no rows")
        )
    if not dataset.loading_lines:
        typer.echo(f"{dataset.path} has no rows: no step passed the filters, or none has a label.", err=True)
        return
    typer.echo(f"\nTraining shards: {dataset.path}\nLoad them with")
    for line in dataset.loading_lines:
        typer.echo(f"  {line}")


def exit_code(result: RunResult) -> int:
    """0, or 1 where a problem's tree failed: the command must not look like success to a script."""
    return 1 if result.statuses.get("failed") else 0
