"""The tables on a terminal: narrow enough, and deaf to what texts say."""

import io

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console
from support.runs import EqualStringJudge, problems, scripted_config

from treeforge.pipeline import run as run_pipeline
from treeforge.stats import ProblemRow, summarise
from treeforge.stats.report import problem_lines, report
from treeforge.stats.summary import LabelsAtDepth, Reason
from treeforge.store.run import RunFolder

HOSTILE = "\x1b[31m[red]x[/red]\u202e\r\n\x07 שלום"


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "run"
    run_pipeline(problems(5), path, scripted_config(), judge=EqualStringJudge())
    return summarise(RunFolder.open(path))


def drawn(renderable, width=80):
    out = io.StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue()


def with_problems(summary, **changes):
    return msgspec.structs.replace(summary, problems=msgspec.structs.replace(summary.problems, **changes))


def test_figures_stand_beside_their_names(summary):
    text = drawn(report(summary))
    lines = {" ".join(line.split()[:2]): line for line in text.splitlines() if line.strip()}
    assert f" {summary.trees.nodes} " in lines[f"nodes {summary.trees.nodes}"]
    assert f"{summary.outcomes.share_correct:.1%}" in lines[f"correct {summary.outcomes.share_correct:.1%}"]
    assert "policy_mean, threshold 0.5" in text
    assert "0.9 – 1.0" in text
    assert "why it ended" not in text  # every tree is simply done


def test_eighty_columns_are_enough(summary):
    for width in (80, 100):
        assert max(cell_len(line) for line in drawn(report(summary), width).splitlines()) <= width


def test_reasons_are_listed_and_cannot_speak(summary):
    reasons = tuple(Reason(status="failed", reason=f"{HOSTILE} {n}" * 9, problems=2) for n in range(12))
    text = drawn(report(with_problems(summary, total=24, by_status={"failed": 24}, reasons=reasons)))
    assert text.count("failed") == 8 + 1
    assert next(line.split() for line in text.splitlines() if "other" in line) == ["8", "for", "other", "reasons"]
    assert "[red]x[/red]" in text
    assert not set("\x1b\u202e\x07\r") & set(text)


def test_deep_trees_share_a_row(summary):
    trees = msgspec.structs.replace(summary.trees, nodes_by_depth=(1,) * 50)
    rows = tuple(LabelsAtDepth(depth=depth, positive=1, negative=0, unlabelled=0) for depth in range(1, 50))
    labels = msgspec.structs.replace(summary.labels, by_depth=rows)
    text = drawn(report(msgspec.structs.replace(summary, trees=trees, labels=labels)))
    assert next(line.split() for line in text.splitlines() if "20+" in line) == ["20+", "30", "30", "0", "0", "100.0%"]


def test_a_list_of_problems_has_a_line_each():
    row = ProblemRow(
        number=7,
        problem_id=HOSTILE,
        status="failed",
        reason="",
        nodes=0,
        completions=0,
        share_correct=None,
        question=HOSTILE * 9,
    )
    other = msgspec.structs.replace(row, number=1234, problem_id="id", status="done", nodes=12, share_correct=0.5)
    heading, *lines = (line.plain for line in problem_lines([row, other], Console(width=80)))
    assert [len(lines), heading.split()[0]] == [2, "#"]
    assert lines[1].split()[:5] == ["1234", "id", "done", "12", "50.0%"]
    assert all(cell_len(line) <= 80 and line.isprintable() for line in lines)


def test_new_figures_stand_where_there_are_some(summary):
    labels = msgspec.structs.replace(
        summary.labels, first_errors=(3, 1), interval_width=0.25, effective_size=6.5, pairs={"negative_positive": 7}
    )
    disputed = msgspec.structs.replace(summary.disputed, undecided=2, unparsable=3, problems=4)
    text = drawn(report(msgspec.structs.replace(summary, labels=labels, disputed=disputed)))
    words = " ".join(text.split())
    assert "intervals 0.25 mean width; effective sample size 6.5 on average" in words
    assert "first errors 4 wrong completions" in words
    assert "75.0% at the first step" in words
    assert "7 wrong ones corrected" in words
    assert "to look at 5 undecided or unparsable, of 4 problems" in words
    assert "to look at" not in drawn(report(summary))
    k = summary.outcomes.pass_at[-1].k
    assert f"pass@1 {summary.outcomes.pass_at[0].share:.1%}, pass@{k} " in words


def test_reasons_are_shown_where_problems_were_screened_out(summary):
    reasons = (Reason(status="done", reason="screened out: 8 of 8 right", problems=5),)
    text = drawn(report(with_problems(summary, screened_out=5, reasons=reasons)))
    assert "screened out: 8 of 8 right" in text
    assert next(line.split()[2] for line in text.splitlines() if "too easy" in line) == "5"
