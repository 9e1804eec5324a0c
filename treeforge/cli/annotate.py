"""`treeforge annotate`: labels for the steps of solutions that are there already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from treeforge.cli import options, results
from treeforge.cli.progress import progress_line


def annotate(
    solutions: options.Solutions,
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder.", show_default=False)],
    format: options.SolutionFormat = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", "--completer", help="What completes the steps: local, server, vllm or scripted."),
    ] = None,
    model: options.Model = None,
    preset: options.StepPreset = None,
    limit: options.GoodRows = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", help="step-rollouts (if not given), omega or adaptive.")
    ] = None,
    children: Annotated[
        int | None, typer.Option("--children", min=1, help="Completions of a step (adaptive: of one request).")
    ] = None,
    seed: options.Seed = None,
    server: options.Servers = None,
    servers_file: options.ServersFile = None,
    replicas: options.Replicas = None,
    concurrency: options.Concurrency = None,
    problems: Annotated[
        str | None,
        typer.Option("--problems", metavar="FILE", help="Gold answers by question, for solutions without any."),
    ] = None,
    question_field: options.QuestionField = None,
    answer_field: options.AnswerField = None,
    id_field: options.IdField = None,
    solution_field: options.SolutionField = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Plain rows: no last step is an end; all are completed.")
    ] = False,
    tag: options.Tag = None,
    labelled: Annotated[
        Path | None,
        typer.Option(
            "--labelled", metavar="FILE", help="Also write a JSON line a solution: its row, steps, labels, values."
        ),
    ] = None,
    skip_bad_rows: options.SkipBadRows = False,
    extend: Annotated[
        bool,
        typer.Option("--extend", help="Add the file's new problems to the run; the other options as it was started."),
    ] = False,
    dry_run: options.DryRun = False,
    pilot: options.Pilot = 0.01,
    price: options.Price = None,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Label the steps of solutions that exist, whoever wrote them, by completions of the policy; then export.

    The same command goes on where a stopped run stopped; so does `treeforge resume`, without the file. With `--extend`
    it adds problems to a run. Labels that the file holds stay out of the run's values; `treeforge quality` compares.
    """
    from treeforge import pipeline
    from treeforge.annotating import read_solutions
    from treeforge.errors import ConfigError
    from treeforge.labelled import write_labelled
    from treeforge.manifest import check_recipe
    from treeforge.recipes import load_config
    from treeforge.store.problems import read_problems
    from treeforge.store.run import RunFolder

    if extend and dry_run:
        raise ConfigError("--dry-run begins a run and --extend goes on with one; leave one of them out")
    if labelled is not None:
        _check_labelled(labelled, out, solutions, problems)
        if dry_run:
            raise ConfigError("--labelled is written at the run's end, which --dry-run does not reach; leave one out")
    options.check_of_format(format, {"--tag": (tag, "math-shepherd")})
    if format is not None and (unfinished or solution_field is not None):
        name = "--unfinished" if unfinished else "--solution-field"
        raise ConfigError(f"{name} is for plain rows; leave it or --format {format} out")
    named = {"search.strategy": strategy, "search.children": children, "seed": seed, "machine.replicas": replicas}
    overrides = [*options.machine_overrides(concurrency, server, servers_file), *(set_ or [])]
    overrides += options.named_overrides(named)
    backend = policy or ("server" if server or servers_file else None)
    settings = load_config(config, overrides, backend=backend, model=model, preset=preset, given=True)
    known = read_problems(problems, skip_bad_rows=skip_bad_rows) if problems else None
    file = read_solutions(
        solutions,
        settings.recipe,
        format=format,
        problems=known.problems if known else (),
        question_field=question_field,
        answer_field=answer_field,
        id_field=id_field,
        solution_field=solution_field,
        unfinished=unfinished,
        tag=options.STEP_TAG if tag is None else tag,
        limit=limit,
        skip_bad_rows=skip_bad_rows,
    )
    if known and problems:
        options.print_skipped(problems, known.skipped)
    options.print_skipped(solutions, file.skipped)
    about: dict[str, Any] = {"source": options.source_name(solutions), "format": file.format, "lines": file.lines}
    with progress_line(quiet) as show:
        if dry_run:
            found = pipeline.dry_run(
                file.problems,
                out,
                settings,
                pilot=pilot,
                price=price,
                solutions=file.solutions,
                on_progress=show,
                **about,
            )
        elif extend:
            check_recipe(RunFolder.open(out), settings.recipe, None)
            result = pipeline.extend(
                out,
                problems=file.problems,
                solutions=file.solutions,
                machine=settings.machine,
                lines=file.lines,
                on_progress=show,
            )
        else:
            result = pipeline.annotate(file.problems, file.solutions, out, settings, on_progress=show, **about)
    if dry_run:
        results.print_estimate(found, json)
        return
    if labelled is not None and result.dataset is not None:
        count = write_labelled(result.path, labelled)
        typer.echo(f"{labelled}: {count:,} solutions with the labels of their steps", err=True)
    results.print_result(result, json)
    raise typer.Exit(results.exit_code(result))


def _check_labelled(labelled: Path, run: Path, *read: str | None) -> None:
    """Refuse a file that could not be written in the end, or whose loss would be one."""
    from treeforge.errors import ConfigError

    options.check_written("--labelled", labelled, *read)
    place, run = labelled.resolve(), run.resolve()
    if run in place.parents and (place.parent != run or place.suffix != ".jsonl"):
        raise ConfigError(f"--labelled: {labelled} would be among the run's own files; name one beside it, as x.jsonl")
