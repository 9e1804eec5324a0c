"""`treeforge check`, end to end."""

import io
import json
import sys
from types import SimpleNamespace

import polars as pl
import pytest

from treeforge.cli import invoke


@pytest.fixture
def check(capsys):
    def call(*arguments):
        code = invoke(["check", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


# One pair -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "gold", "code", "verdict"),
    [
        ("So it is $\\boxed{\\frac{6}{4}}$.", "1.5", 0, "correct"),
        ("-3", "-3", 0, "correct"),
        ("-x^2", "-x^2+1", 1, "incorrect"),
        ("", "7", 1, "no_answer"),
        ("$$\\frac{$$", "7", 1, "unparsable"),
        ("2", "\\frac{1}{", 1, "undecided"),
    ],
)
def test_the_exit_code_says_whether_it_is_correct(check, prediction, gold, code, verdict):
    found, out, errors = check(prediction, gold)
    assert (found, errors) == (code, "")
    assert f"verdict  {verdict}\n" in out
    assert check(prediction, gold, "--json")[0] == code


def test_what_is_printed(check):
    code, out, _ = check("So it is $\\boxed{3.0}$.", "4")
    assert out.splitlines()[:3] == ["verdict  incorrect", "answer   3.0", "route    exact"]
    code, out, _ = check("So it is $\\boxed{3.0}$.", "3", "--json")
    assert (code, json.loads(out)) == (0, {"verdict": "correct", "answer": "3.0", "route": "exact", "reason": ""})


def test_explain_shows_both_readings(check):
    code, out, _ = check("1 1/2", "\\frac32", "--explain")
    assert code == 0
    assert "answer   '1 1/2'" in out
    assert out.count("read as") == 2
    assert "verdict  correct, route exact" in out
    code, out, _ = check("1 1/2", "\\frac32", "--explain", "--json")
    assert json.loads(out)["explanation"][0] == "answer   '1 1/2'"


def test_presets_and_single_keys(check):
    assert check("10", "10 cm")[0] == 0
    assert check("10", "10 cm", "--preset", "strict")[0] == 1
    assert check("10", "10 cm", "--set", "units=exact")[0] == 1
    assert check("10", "10 cm", "--preset", "strict", "--set", "units=optional")[0] == 0


def test_a_prediction_from_stdin(check, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"so \\boxed{7}\xff\n"), encoding="utf-8"))
    assert check("-", "7")[0] == 0


@pytest.mark.parametrize("hostile", ["a\x1b[2J\x00b\u202e", "\udcff\udcfe", "\x1b]0;title\x07"])
def test_hostile_text_prints_safely(check, hostile):
    for options in ([], ["--explain"], ["--json"], ["--explain", "--json"]):
        code, out, _ = check(hostile, "7", *options)
        assert code == 1
        assert out.replace("\n", "").isprintable()
        out.encode()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "PREDICTION is missing"),
        (["5"], "GOLD is missing"),
        (["5", "--explian"], "no option --explian"),
        (["5", "6", "7"], ""),
        (["5", "6", "--preset", "loose"], "presets are default, strict, math-verify-like, prm800k"),
        (["5", "6", "--set", "units=some"], "exact, optional"),
        (["5", "6", "--set", "unit=exact"], "the keys are name, percent"),
        (["5", "--pairs", "pairs.jsonl"], "--pairs"),
        (["--pairs", "none.jsonl"], "no such file"),
        (["--pairs", "none.jsonl", "--explain"], "--explain is for one pair"),
        (["5", "5", "--out", "out.jsonl"], "--out goes with --pairs"),
    ],
)
def test_usage_errors_exit_2(check, arguments, says):
    code, out, errors = check(*arguments)
    assert (code, out) == (2, "")
    assert says in errors


# A file of pairs ------------------------------------------------------------------------------------------------------

ROWS = [
    {"prediction": "\\boxed{1/2}", "gold": "0.5", "equal": True},
    {"prediction": "5", "gold": "6", "equal": True},
    {"prediction": "7", "gold": "7", "equal": False},
    {"prediction": "8", "gold": "9", "equal": False},
    {"prediction": "8", "gold": "9", "equal": None},
    {"prediction": "", "gold": "9"},
    {"prediction": 4, "gold": 4.0, "equal": True},
]


@pytest.fixture
def pairs(tmp_path):
    def write(rows, name="pairs.jsonl"):
        file = tmp_path / name
        file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return file

    return write


def test_a_file_is_counted_and_disagreements_are_shown(check, pairs):
    code, out, _ = check("--pairs", pairs(ROWS))
    assert code == 1
    assert "7 pairs by the policy default" in out
    assert "3 of 5 as expected (60.00%); 1 wrongly correct, 1 wrongly not" in out
    assert [line.split()[:3] for line in out.splitlines()[-2:]] == [
        ["2", "equal", "incorrect"],
        ["3", "different", "correct"],
    ]
    code, out, errors = check("--pairs", pairs(ROWS), "--limit", "1")
    assert "1 more" in errors
    report = json.loads(check("--pairs", pairs(ROWS), "--json")[1])
    assert (report["pairs"], report["expected"]) == (7, 5)
    assert (report["wrongly_correct"], report["wrongly_different"]) == (1, 1)
    assert report["verdicts"]["no_answer"] == {"none": 1}
    assert sum(sum(routes.values()) for routes in report["verdicts"].values()) == 7
    assert [row["line"] for row in report["disagreements"]] == [2, 3]


def test_without_disagreements_the_exit_code_is_0(check, pairs):
    assert check("--pairs", pairs([ROWS[0], ROWS[3]]))[0] == 0
    assert check("--pairs", pairs([ROWS[4]]))[0] == 0
    assert check("--pairs", pairs([{"prediction": "10", "gold": "10 cm", "equal": True}]), "--preset", "strict")[0] == 1


def test_every_judgement_is_written(check, pairs, tmp_path):
    code, _, _ = check("--pairs", pairs(ROWS), "--out", tmp_path / "out.jsonl", "--limit", "0")
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert code == 1
    assert [row["line"] for row in written] == [1, 2, 3, 4, 5, 6, 7]
    assert written[0] == {**ROWS[0], "line": 1, "verdict": "correct", "answer": "1/2", "route": "exact", "reason": ""}
    assert written[5]["equal"] is None


def test_csv_and_parquet(check, tmp_path):
    frame = pl.DataFrame({"prediction": ["5", "\\frac12"], "gold": ["5", "0.6"], "equal": [True, True]})
    frame.write_csv(tmp_path / "pairs.csv")
    frame.write_parquet(tmp_path / "pairs.parquet")
    for name in ("pairs.csv", "pairs.parquet"):
        report = json.loads(check("--pairs", tmp_path / name, "--json")[1])
        assert (report["pairs"], report["wrongly_different"]) == (2, 1), name


def test_other_field_names(check, pairs):
    file = pairs([{"output": "5", "label": "5", "same": "yes"}])
    fields = ["--prediction-field", "output", "--gold-field", "label", "--equal-field", "same"]
    assert json.loads(check("--pairs", file, *fields, "--json")[1])["expected"] == 1


BAD = [
    ('{"prediction": "\\ud800", "gold": "1"}', "half of a surrogate pair"),
    ('{"prediction": "1"}', "there is no field 'gold'; the row has 'prediction'. Name the field of the gold with"),
    ('{"prediction": ["1"], "gold": "1"}', "field 'prediction': is a list where text is expected"),
    ('{"prediction": "1", "gold": null}', "field 'gold': is missing"),
    ('{"prediction": "1", "gold": true}', "field 'gold': is a bool"),
    ('{"prediction": "1", "gold": "1", "equal": "maybe"}', "field 'equal': says neither yes nor no. Write one of true"),
    ('{"prediction": "1", ', "is not valid JSON"),
    ("[1]", "is an array where an object is expected"),
]


@pytest.mark.parametrize(("row", "says"), BAD)
def test_a_bad_row_is_named_and_nothing_is_written(check, pairs, tmp_path, row, says):
    file = pairs([ROWS[0], row])
    code, out, errors = check("--pairs", file, "--out", tmp_path / "out.jsonl")
    assert (code, out) == (2, "")
    assert f"{file}:2: " in errors
    assert says in errors
    assert "--skip-bad-rows" in errors
    assert not (tmp_path / "out.jsonl").exists()


def test_bad_rows_can_be_left_out_and_are_listed(check, pairs):
    code, out, errors = check("--pairs", pairs([ROWS[0], *(row for row, _ in BAD)]), "--skip-bad-rows", "--json")
    assert code == 0
    assert json.loads(out)["pairs"] == 1
    assert errors.count("skipped") == len(BAD)
    assert check("--pairs", pairs([row for row, _ in BAD]), "--skip-bad-rows")[0] == 2
    assert check("--pairs", pairs([]))[0] == 2


def test_hostile_rows_print_safely(check, pairs):
    rows = [{"prediction": "a\x00\x1b[2J\u202e", "gold": "\x1b[31m7", "equal": True}]
    code, out, _ = check("--pairs", pairs(rows))
    assert code == 1
    assert out.replace("\n", "").isprintable()
    assert check("--pairs", pairs(rows), "--json")[1].replace("\n", "").isascii()


@pytest.mark.slow
def test_what_sympy_decides_says_so(check):
    code, out, _ = check("\\sum_{n=0}^{\\infty} \\frac{1}{n!}", "e")
    assert code == 0
    assert "route    symbolic" in out
