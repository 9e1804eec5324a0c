"""`treeforge evaluate`: what reward models are worth, by what they choose and by the steps that they judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treeforge.cli import options, results
from treeforge.cli.progress import count_line, progress_line

if TYPE_CHECKING:
    from treeforge.config import RunConfig
    from treeforge.reward.base import RewardModel
    from treeforge.reward.evaluate import Evaluation
    from treeforge.reward.step_quality import StepQuality

_PEOPLE = {"processbench": "--processbench", "prm800k": "--prm800k"}


def evaluate(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A finished run of best-of-n; with --problems it is made, or goes on.",
            show_default=False,
        ),
    ] = None,
    reward: Annotated[
        list[str] | None,
        typer.Option(
            "--reward",
            metavar="A,B,…",
            help="Reward models: folders of `treeforge train`, hf://OWNER/NAME, or http(s)://…. May be repeated.",
        ),
    ] = None,
    n: Annotated[
        str | None,
        typer.Option(
            "--n",
            metavar="N,N,…",
            help="Solutions to choose among; 1,2,4,8,16,24 if not given, of a run of best-of-n those that it has.",
        ),
    ] = None,
    aggregate: Annotated[
        list[str] | None,
        typer.Option(
            "--aggregate",
            metavar="HOW,…",
            help="How a solution's step scores become one: min, product, mean, last, hierarchical. By default what "
            "fits each model. May be repeated.",
        ),
    ] = None,
    processbench: Annotated[
        Path | None,
        typer.Option("--processbench", metavar="FILE", help="Find the first wrong steps of this file's solutions."),
    ] = None,
    prm800k: Annotated[
        Path | None, typer.Option("--prm800k", metavar="FILE", help="Compare step scores with this file's ratings.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", min=0.0, max=1.0, help="A step below it is called wrong; 0.5 if not given."),
    ] = None,
    threshold_from: Annotated[
        Path | None,
        typer.Option(
            "--threshold-from", metavar="FILE", help="Take the threshold with the best F1 on this file instead."
        ),
    ] = None,
    problems: Annotated[
        str | None, typer.Option("--problems", metavar="FILE", help="Sample solutions of these problems into RUN.")
    ] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="local, server, vllm or scripted.")] = None,
    model: options.Model = None,
    preset: options.StepPreset = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N problems.")] = None,
    server: options.Servers = None,
    servers_file: options.ServersFile = None,
    replicas: options.Replicas = None,
    concurrency: options.Concurrency = None,
    question_field: options.QuestionField = None,
    answer_field: options.AnswerField = None,
    id_field: options.IdField = None,
    skip_bad_rows: options.SkipBadRows = False,
    config: options.Config = None,
    set_: options.Set = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Windows that a reward model reads at once.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Of a new run, and of the intervals' resamples.")
    ] = None,
    json: options.Json = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write all figures, a line each.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw accuracy by N: .svg, .png or .html.", show_default=False),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Accuracy by N of choosing among sampled solutions, and step scores against people's labels.

    By each reward model (best-of-N and a vote weighted by scores), the majority vote, a blind and a perfect choice, all
    among the same samples. Scores are kept in RUN, so that no solution is scored twice. Intervals: bootstrap over
    problems.
    """
    from treeforge.errors import ConfigError
    from treeforge.recipes import load_config
    from treeforge.reward.base import check_aggregate
    from treeforge.reward.evaluate import evaluate as evaluate_run

    sampling: dict[str, Any] = {
        "--policy": policy,
        "--model": model,
        "--preset": preset,
        "--limit": limit,
        "--server": server,
        "--servers-file": servers_file,
        "--replicas": replicas,
        "--concurrency": concurrency,
        "--question-field": question_field,
        "--answer-field": answer_field,
        "--id-field": id_field,
        "--skip-bad-rows": skip_bad_rows,
        "--config": config,
        "--set": set_,
    }
    if problems is None and (given := [name for name, value in sampling.items() if value]):
        raise ConfigError(f"{given[0]}: name the problems to sample solutions of as well (--problems FILE)")
    if problems is not None and run is None:
        raise ConfigError("--problems: name RUN too, the run folder that the solutions are sampled into")
    sizes = _sizes(run, n, sampled=problems is not None)
    places, aggregates = _listed(reward), [check_aggregate(how) for how in _listed(aggregate)]
    people = {name: file for name, file in (("processbench", processbench), ("prm800k", prm800k)) if file is not None}
    if not places and (aggregates or batch):
        raise ConfigError(f"{'--aggregate' if aggregates else '--batch'} is about reward models; name some by --reward")
    if run is None and aggregates:
        raise ConfigError("--aggregate is about whole solutions, which are chosen among in RUN; name RUN")
    _check_asked(run, places, people, threshold, threshold_from, plot)
    _check_outputs(csv, plot, run)
    if problems is not None and run is not None:
        overrides = [*options.machine_overrides(concurrency, server, servers_file), *(set_ or [])]
        overrides += options.named_overrides({"seed": seed, "machine.replicas": replicas})
        backend = policy or ("server" if server or servers_file else None)
        settings = load_config(config, overrides, backend=backend, model=model, preset=preset)
        _check_trained(places)
        fields = {"question_field": question_field, "answer_field": answer_field, "id_field": id_field}
        _sample(run, problems, settings, sizes[-1], quiet, limit=limit, skip_bad_rows=skip_bad_rows, **fields)
    models = _models(places, batch)
    found = None
    if run is not None:
        with count_line(quiet, "problems") as show:
            found = evaluate_run(run, models, n=sizes, aggregates=aggregates, seed=seed or 0, on_progress=show)
    steps = {name: _steps(models, name, file, threshold, threshold_from, seed or 0) for name, file in people.items()}
    _write(found, steps, csv, plot)
    if json:
        results.print_json({"evaluation": found, "steps": steps})
    else:
        _print(found, steps)


def _sizes(run: Path | None, n: str | None, *, sampled: bool) -> tuple[int, ...]:
    """The N asked for, else the paper's; of a run that samples fewer solutions, those up to its number."""
    from treeforge.errors import ConfigError
    from treeforge.reward.evaluate import SIZES, check_sizes
    from treeforge.store.run import RunFolder

    asked = None if n is None else check_sizes(_numbers(n))
    if asked is not None and run is None:
        raise ConfigError("--n is about choosing among a run's solutions; name RUN")
    if run is None or not (run / "manifest.json").exists():
        return asked or SIZES
    folder = RunFolder.open(run)
    if folder.strategy != "best-of-n":
        return asked or SIZES
    most = int(folder.manifest["recipe"]["search"]["solutions"])
    if asked is None:
        return tuple(size for size in SIZES if size <= most)
    if asked[-1] > most and not sampled:  # Before models are loaded.
        raise ConfigError(f"--n: {run} has {most} solutions of a problem, fewer than {asked[-1]}; ask for smaller N")
    return asked


def _numbers(text: str) -> list[int]:
    from treeforge.errors import ConfigError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--n: {text!r} is no list of numbers, as in 1,2,4,8") from None


def _listed(given: Sequence[str] | None) -> list[str]:
    """The names of an option that may be repeated and takes several with commas."""
    return [name for value in given or () for part in value.split(",") if (name := part.strip())]


def _check_asked(
    run: Path | None,
    places: Sequence[str],
    people: dict[str, Path],
    threshold: float | None,
    threshold_from: Path | None,
    plot: Path | None,
) -> None:
    from treeforge.errors import ConfigError
    from treeforge.stats.step_labels import guessed_format

    if run is None and not people:
        raise ConfigError("there is nothing to evaluate: name RUN, --processbench FILE or --prm800k FILE")
    if twice := [place for place in places if places.count(place) > 1]:
        raise ConfigError(f"--reward: {twice[0]} is there twice")
    if people and not places:
        raise ConfigError(f"{_PEOPLE[next(iter(people))]}: name the models whose steps are judged by it (--reward)")
    if run is None and plot is not None:
        raise ConfigError("--plot: accuracy by N is of a run; name RUN")
    if not people and (threshold is not None or threshold_from is not None):
        option = "--threshold" if threshold is not None else "--threshold-from"
        raise ConfigError(f"{option} is for --processbench and --prm800k")
    if threshold is not None and threshold_from is not None:
        raise ConfigError("--threshold and --threshold-from: give one of them")
    for name, file in people.items():
        if (format := guessed_format(file)) != name:
            raise ConfigError(f"{_PEOPLE[name]}: {file} looks like a file for {_PEOPLE[format]}")


def _check_outputs(csv: Path | None, plot: Path | None, run: Path | None) -> None:
    from treeforge.errors import ConfigError
    from treeforge.reward.plot import check_plot

    if plot is not None:
        check_plot(plot)
    if csv is not None:
        if csv.is_dir():
            raise ConfigError(f"--csv {csv}: that is a folder; name a file in it, as in {csv / 'accuracy.csv'}")
        if run is not None and csv.is_file() and csv.suffix != ".csv" and run.resolve() in csv.resolve().parents:
            raise ConfigError(f"--csv: {csv} is a file of the run; name another one, as accuracy.csv")


def _sample(run: Path, path: str, settings: RunConfig, solutions: int, quiet: bool, **reading: Any) -> None:
    """Make the run, or go on with it."""
    from treeforge.reward.evaluate import grow_solutions
    from treeforge.store.problems import read_problems

    file = read_problems(path, **reading)
    options.print_skipped(path, file.skipped)
    source = options.source_name(path)
    with progress_line(quiet) as show:
        grow_solutions(
            file.problems, run, settings, solutions=solutions, source=source, on_progress=show, lines=file.lines
        )


def _check_trained(places: Sequence[str]) -> None:
    """A folder or repository that is no reward model is an error before the policy is paid."""
    from treeforge.reward.score import model_folder, saved_in

    for place in places:
        if (folder := model_folder(place)) is not None:
            saved_in(folder)


def _models(places: Sequence[str], batch: int | None) -> list[RewardModel]:
    if not places:
        return []
    from treeforge.reward.score import load_reward_model

    return [load_reward_model(place, batch=batch) for place in places]


def _steps(
    models: Sequence[RewardModel],
    name: str,
    file: Path,
    threshold: float | None,
    threshold_from: Path | None,
    seed: int,
) -> tuple[StepQuality, ...]:
    from treeforge.errors import DataError
    from treeforge.printable import one_line
    from treeforge.reward.step_quality import THRESHOLD, step_quality

    limit = THRESHOLD if threshold is None else threshold
    for model in models:
        if model.task == "orm":
            typer.echo(f"--{name} leaves {one_line(model.name)} out: an ORM judges no single steps", err=True)
    try:
        return step_quality(models, file, format=name, threshold=limit, threshold_from=threshold_from, seed=seed)
    except DataError as error:
        # The readers' own advice names an option of other commands.
        fix = "Repair the row or leave it out" if "--format" in (error.fix or "") else error.fix
        raise DataError(error.problem, path=error.path, line=error.line, field=error.field, fix=fix) from None


def _write(
    found: Evaluation | None, steps: dict[str, tuple[StepQuality, ...]], csv: Path | None, plot: Path | None
) -> None:
    from treeforge.reward.plot import write_plot
    from treeforge.reward.report import evaluation_csv
    from treeforge.store.files import atomic_file

    if csv is not None:
        with atomic_file(csv) as stream:
            stream.write(evaluation_csv(found, steps).encode("utf-8", errors="replace"))
    if plot is not None and found is not None:
        write_plot(plot, found)


def _print(found: Evaluation | None, steps: dict[str, tuple[StepQuality, ...]]) -> None:
    from treeforge.printable import stdout_console
    from treeforge.reward import report

    console = stdout_console()
    if found is not None:
        console.print(report.accuracy_table(found))
        for table in (report.majority_table(found), report.first_table(found)):
            if table is not None:
                console.print()
                console.print(table)
        console.print()
        for line in report.closing_lines(found):
            typer.echo(line)
    for name, judged in steps.items():
        if found is not None or name != next(iter(steps)):
            console.print()
        console.print(report.step_table(judged, name))
        typer.echo(report.step_line(judged))
