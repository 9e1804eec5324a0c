"""What `treeforge export` says of options that cannot be, and of what its filters took."""

import json

import pytest
from support.runs import problems

from treeforge.cli import invoke
from treeforge.errors import DataError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    rows = [{"id": p.problem_id, "question": p.question, "answer": p.gold_answer} for p in problems(3)]
    file = folder / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["run", file, "--out", folder / "run", "--policy", "scripted", "--simulations", "4", "--quiet"]
    assert invoke([str(a) for a in arguments]) == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--dedupe", "fuzzy"],
            "--dedupe (export.dedupe): Invalid enum value 'fuzzy'; the values are off, exact, near",
        ),
        (["--min-rollouts", "2147483648"], "--min-rollouts (export.min_rollouts) must be less than 2^31"),
        (["--max-interval", "inf"], "--max-interval (export.max_interval) must not be negative or infinite"),
        (["--set", "rows_per_shard=4294967296"], "rows_per_shard must be less than 2^31"),
        (["--where", "soft ="], "--where (export.where): 'soft =' is no SQL condition"),
        (["--format", "foo"], "--format (export.formats): there is no format 'foo'; there are hrm, kto"),
        (["--format", "foo"], "graphml, dot and mermaid"),
        (["--format", "tokens", "--tokenizer", "x.json"], "--tokenizer (export.tokenizer): there is no such file"),
        (["--set", "spans=[99]"], "(export.spans)"),
    ],
)
def test_errors_name_the_option(run, capsys, arguments, message):
    if "tokens" in arguments:
        pytest.importorskip("tokenizers")
    before = sorted(run.rglob("*.parquet"))
    assert invoke(["export", str(run), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert sorted(run.rglob("*.parquet")) == before


def test_one_problem_of_a_benchmark_is_one(run, capsys, tmp_path):
    file = tmp_path / "bench.jsonl"
    file.write_text(json.dumps({"question": problems(1)[0].question}) + "\n")
    arguments = ["--decontaminate", file, "--set", "ngram=100", "--out", tmp_path / "out"]
    assert invoke(["export", str(run), *map(str, arguments)]) == 0
    assert "bench.jsonl, left out: 1 problem, listed" in capsys.readouterr().out


def test_a_sentence_ends_with_one_period():
    assert (
        str(DataError("is no parquet file.", path="a", fix="Write it again")) == "a: is no parquet file. Write it again"
    )
    assert str(DataError("is no parquet file.", path="a")) == "a: is no parquet file."
