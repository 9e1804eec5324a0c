"""`treeforge evaluate` end to end: the scripted policy, reward models behind a loopback server, tables and files."""

import csv
import io
import json

import pytest
from support.reward_server import RewardServer
from support.runs import problems, scripted_config

from treeforge.cli import invoke
from treeforge.reward.evaluate import Curve, Evaluation, Point, grow_solutions
from treeforge.reward.plot import specification
from treeforge.reward.report import closing_lines, first_table
from treeforge.stats.bootstrap import Figure


def ends_right(texts):
    """Knows the scripted world: right steps end in 7, wrong answers are negative."""
    return [
        0.9 if text.rstrip().endswith("7.") or ("The answer is" in text and "-" not in text) else 0.2 for text in texts
    ]


@pytest.fixture
def treeforge(capsys):
    def call(*arguments):
        code = invoke(["evaluate", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def problem_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"id": p.problem_id, "question": p.question, "answer": p.gold_answer} for p in problems(6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with 4 solutions of each of 6 problems."""
    return grow_solutions(problems(6), tmp_path_factory.mktemp("run") / "run", scripted_config(), solutions=4)


def people(path):
    rows = [
        {"problem": "P?", "steps": ["so 7.", "so 7."], "label": -1, "final_answer_correct": True},
        {"problem": "Q?", "steps": ["so 7.", "so 4."], "label": 1},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_is_made_and_evaluated_without_models(treeforge, problem_file, tmp_path):
    made = tmp_path / "run", "--policy", "scripted", "--problems", problem_file, "--n", "1,2,4", "--quiet"
    code, out, _ = treeforge(*made)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line and line[0].isalpha()] == [
        "right,",
        "random",
        "majority",
        "oracle",
    ]
    assert "6 problems with 24 samples; 90% intervals" in out
    # The same command goes on, here with nothing to do; RUN alone is enough.
    assert treeforge(*made)[:2] == (0, out)
    assert treeforge(tmp_path / "run", "--n", "4,2,1")[:2] == (0, out)
    assert treeforge(tmp_path / "run")[:2] == (0, out)


def test_models_are_asked_once(run, treeforge, tmp_path):
    with RewardServer(ends_right, models=["good"]) as server, RewardServer(lambda t: [0.5] * len(t)) as blind:
        places = f"{server.url}?task=hrm,{blind.url}?task=prm"
        code, out, _ = treeforge(run, "--reward", places, "--n", "1,4", "--csv", tmp_path / "a.csv")
        assert code == 0
        posts = len(server.posts)
        assert posts > 0
        code, printed, _ = treeforge(
            run, "--reward", places.split(",")[0], "--n", "1,4", "--json", "--aggregate", "last"
        )
        assert code == 0
        assert len(server.posts) == posts
    for words in ("good, vote", "above majority", "above good", "hrm, vote"):
        assert words in out
    found = json.loads(printed)["evaluation"]
    assert {curve["name"] for curve in found["curves"]} == {"random", "majority", "good", "good, vote", "oracle"}
    assert {curve["aggregate"] for curve in found["curves"]} == {"", "last"}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert {(row["way"], row["model"]) for row in rows} >= {("best-of-n", "good"), ("weighted vote", "hrm")}
    (best,) = [row for row in rows if (row["way"], row["at"], row["measure"]) == ("oracle", "4", "accuracy")]
    assert float(best["low"]) <= float(best["value"]) <= float(best["high"])
    # The last step tells right from wrong here, so that choosing by it is as good as can be.
    values = {curve["name"]: curve["points"][-1]["accuracy"]["value"] for curve in found["curves"]}
    assert values["good"] == values["oracle"] == float(best["value"])


def test_steps_against_people(treeforge, tmp_path):
    file = people(tmp_path / "people.jsonl")
    with RewardServer(ends_right, models=["good"]) as server:
        hrm, orm = f"{server.url}?task=hrm", f"{server.url}?task=orm"
        code, out, err = treeforge("--processbench", file, "--reward", hrm, "--reward", orm)
        assert code == 0
        for words in (
            "processbench",
            "single < 0.5",
            "pair < 0.5",
            "hierarchical < 0.5",
            "4 steps that people labelled",
        ):
            assert words in out
        assert "--processbench leaves good out: an ORM" in err
        code, out, _ = treeforge("--processbench", file, "--reward", hrm, "--threshold-from", file, "--json")
        assert code == 0
        found = json.loads(out)
        assert found["evaluation"] is None
        assert found["steps"]["processbench"][0]["threshold"] == pytest.approx(0.55)
        assert found["steps"]["processbench"][0]["quality"]["first_errors"]["f1"]["value"] == 1
        code, _, err = treeforge("--prm800k", file, "--reward", hrm)
        assert (code, "looks like a file for --processbench" in err) == (2, True)
        bad = tmp_path / "bad.jsonl"
        bad.write_text(file.read_text() + '{"problem": "R?", "steps": "no list", "label": 0}\n')
        code, _, err = treeforge("--processbench", bad, "--reward", hrm)
        assert code == 2
        assert "bad.jsonl:3: field 'steps'" in err
        assert "--format" not in err


def test_a_hostile_name_is_text(run, treeforge, tmp_path):
    pytest.importorskip("vl_convert")
    with RewardServer(ends_right, models=["</svg><script>x\x1b[2J [red]"]) as server:
        place = f"{server.url}?task=prm"
        code, out, _ = treeforge(run, "--reward", place, "--n", "1,2", "--plot", tmp_path / "plot.html")
        assert code == 0
        treeforge(run, "--reward", place, "--n", "1,2", "--plot", tmp_path / "plot.svg")
    assert "\x1b" not in out
    assert "[red]" in out
    page, svg = (tmp_path / "plot.html").read_text(), (tmp_path / "plot.svg").read_text()
    assert "<script" not in page
    assert "<script" not in svg
    assert page.count("</svg>") == svg.count("</svg>") == 1
    assert "default-src 'none'" in page


def test_the_plot(run, treeforge, tmp_path):
    pytest.importorskip("vl_convert")
    for suffix, start in ((".svg", b"<svg"), (".png", b"\x89PNG"), (".html", b"<!doctype html>")):
        file = tmp_path / f"plot{suffix}"
        assert treeforge(run, "--n", "1,2,4", "--plot", file)[0] == 0
        assert file.read_bytes().startswith(start)
    text = (tmp_path / "plot.svg").read_text()
    assert "stays above the majority vote" in text
    assert "6 problems with 24 samples" in text
    gone = treeforge(run, "--n", "1", "--plot", tmp_path / "plot.gif")
    assert (gone[0], ".svg, .png, .html" in gone[2]) == (2, True)
    assert treeforge(run, "--n", "1", "--plot", tmp_path)[0] == 2


def evaluation(*models):
    figure = Figure(0.5, 0.4, 0.6)
    point = Point(n=1, accuracy=figure, over_majority=figure, over_first=figure)
    kinds = [("oracle", "oracle", ""), *((name, "best-of-n", name) for name in models), ("majority", "majority", "")]
    kinds += [(f"{name}, vote", "weighted vote", name) for name in models]
    return Evaluation(
        run="run",
        problems=9,
        samples=9,
        undecided=2,
        errors=3,
        left_out={"fewer than 4 samples": 1},
        confidence=0.9,
        curves=tuple(
            Curve(name=name, kind=kind, model=model, aggregate="min" if model else "", points=(point,))
            for name, kind, model in kinds
        ),
    )


def test_each_line_of_the_plot_can_be_told_apart():
    models = [f"m{number}" for number in range(8)]
    layers = specification(evaluation(*models))
    encodings = [layers["encoding"], *(layer["encoding"] for layer in layers["layer"])]
    scales = {
        channel: dict(zip(where[channel]["scale"]["domain"], where[channel]["scale"]["range"], strict=True))
        for where in encodings
        for channel in ("color", "strokeDash", "shape")
        if channel in where
    }
    assert scales["strokeDash"]["majority"] != scales["strokeDash"]["oracle"] != []
    assert all(scales["strokeDash"][name] == [] for name in models)
    looks = {(scales["color"][name], scales["shape"][name]) for name in models}
    assert len(looks) == 8
    assert {row["way"] for row in layers["data"]["values"]} == {*models, "oracle", "majority"}


def test_what_is_not_in_the_figures_is_said():
    said = " ".join(closing_lines(evaluation("m")))
    for words in ("1 with fewer than 4 samples", "2 samples are undecided and count as wrong", "3 requests"):
        assert words in said
    assert first_table(evaluation("m")) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to evaluate"),
        (["RUN", "--n", "0"], "1 or more"),
        (["RUN", "--n", "2,1,2"], "2 is there twice"),
        (["RUN", "--n", "2;4"], "no list of numbers"),
        (["RUN", "--n", "8", "--reward", "nowhere"], "has 4 solutions of a problem, fewer than 8"),
        (["--n", "2", "--processbench", "PEOPLE", "--reward", "nowhere"], "--n is about choosing among a run's"),
        (["RUN", "--aggregate", "median"], "none of min, product"),
        (["RUN", "--aggregate", "min"], "--aggregate is about reward models"),
        (["RUN", "--batch", "4"], "--batch is about reward models"),
        (["RUN", "--skip-bad-rows"], "--skip-bad-rows: name the problems"),
        (["--processbench", "PEOPLE", "--reward", "x", "--aggregate", "min"], "--aggregate is about whole solutions"),
        (["RUN", "--reward", "nowhere"], "nowhere is no reward model"),
        (["RUN", "--reward", "a,a"], "a is there twice"),
        (["RUN", "--threshold", "0.4"], "--threshold is for --processbench"),
        (["RUN", "--policy", "scripted"], "--problems FILE"),
        (["--problems", "FILE"], "name RUN too"),
        (["--processbench", "PEOPLE"], "--reward"),
        (["--processbench", "PEOPLE", "--reward", "x", "--plot", "x.svg"], "--plot: accuracy by N is of a run"),
        (
            ["--processbench", "PEOPLE", "--reward", "x", "--threshold", "0.1", "--threshold-from", "PEOPLE"],
            "one of them",
        ),
        (["--processbench", "nowhere.jsonl", "--reward", "x"], "nowhere.jsonl"),
        (["RUN", "--csv", "RUN/journal.sqlite"], "is a file of the run"),
        (["nowhere"], "no run folder"),
    ],
)
def test_what_cannot_be_asked(run, treeforge, problem_file, tmp_path, arguments, said):
    names = {"RUN": run, "FILE": problem_file, "PEOPLE": people(tmp_path / "people.jsonl")}
    given = [names.get(word) or word.replace("RUN/", f"{run}/") for word in arguments]
    code, out, err = treeforge(*given)
    assert (code, out) == (2, "")
    assert said in err


def test_a_place_that_is_no_model_is_found_before_the_policy_is_paid(treeforge, problem_file, tmp_path):
    run = tmp_path / "run"
    code, _, err = treeforge(run, "--policy", "scripted", "--problems", problem_file, "--reward", tmp_path)
    assert code == 2
    assert "no reward model" in err
    assert not run.exists()


@pytest.mark.train
def test_a_trained_model_by_its_folder(run, treeforge, trained, tmp_path):
    folder = trained["classifier"]
    code, out, _ = treeforge(run, "--reward", folder, "--n", "1,4", "--processbench", people(tmp_path / "p.jsonl"))
    assert code == 0
    assert f"{folder.name}, vote" in out
    assert "hierarchical < 0.5" in out
    assert treeforge(run, "--reward", folder, "--n", "1,4", "--batch", "2", "--json")[0] == 0
