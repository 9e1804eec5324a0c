"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from treeforge.config import Machine
    from treeforge.reward.score import StepScorer
    from treeforge.store.problems import BadRow

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
        help="--strategy beam: rank by this reward model: a folder of `treeforge train`, hf://OWNER/NAME or "
        "http://HOST:PORT?folder=….",
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
