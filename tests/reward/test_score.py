"""Scoring files, and beam search by a reward model, without torch: models are plain functions or are served."""

import json

import numpy as np
import pytest
from support.reward_server import RewardServer
from support.runs import problems, scripted_config

from treeforge import pipeline
from treeforge.annotating import read_solutions
from treeforge.cli import invoke
from treeforge.config import StepsConfig
from treeforge.errors import ConfigError, DataError, RecipeChangedError, ScorerError
from treeforge.problem import make_problem
from treeforge.reward.base import Window
from treeforge.reward.score import PART, StepScorer, load_reward_model, score_file
from treeforge.store.run import RunFolder

pytest.importorskip("aiohttp", reason="pip install 'treeforge[server]'")

STEPS = StepsConfig()


class Good:
    """Says 0.9 of a window whose last step says good, else 0.2, but 0.7 of a pair that repairs; counts its calls."""

    name, identity = "good", "good-1"

    def __init__(self, task="hrm"):
        self.task, self.calls = task, []

    def probabilities(self, windows):
        self.calls.append(len(windows))
        return np.array([0.9 if window.current.strip().endswith("good") else 0.2 for window in windows])


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scored(path, model=None, aggregate=None, **options):
    return list(score_file(model or Good(), read_solutions(path, gold=False, **options), STEPS, aggregate))


def test_a_file_of_solutions(tmp_path):
    path = write(
        tmp_path / "s.jsonl",
        {"question": "q", "steps": ["a bad", "b good"], "id": "x"},
        {"question": "r", "solution": "a good\nb good\nc bad"},
        {"question": "q", "steps": ["all good"], "id": "x"},
    )
    first, second, third = scored(path)
    assert first.completions == ("a bad\n", "b good\n")
    assert (first.row, first.problem_id, first.prompt, first.places) == (1, "x", "q", (0, 1))
    assert (first.single, first.pairs) == ((0.2, 0.9), (0.9,))
    assert first.scores == pytest.approx({"min": 0.2, "product": 0.18, "mean": 0.55, "last": 0.9, "hierarchical": 0.9})
    assert first.score == first.scores["hierarchical"]
    assert second.single == (0.9, 0.9, 0.2)
    assert (third.row, third.single, third.pairs) == (3, (0.9,), ())
    assert scored(path, Good("prm"))[0].score == 0.2
    assert scored(path, Good("prm"), "mean")[0].score == pytest.approx(0.55)
    assert scored(path, Good("orm"))[0].single == (0.9,)


def test_a_file_needs_no_gold_answers_and_bad_ones_do_not_matter(tmp_path):
    rows = [{"question": "q", "answer": 7, "steps": ["good"]}, {"question": "q", "answer": None, "steps": ["bad"]}]
    path = write(tmp_path / "s.jsonl", *rows)
    assert [line.score for line in scored(path)] == [0.9, 0.2]
    assert {line.problem_id for line in scored(path)} == {make_problem("q", "").problem_id}
    with pytest.raises(DataError, match="answer"):
        read_solutions(path)


@pytest.mark.parametrize(
    ("steps", "read"),
    [
        (["a", "b"], ["a\n", "b\n"]),
        (["a\n", "b\n"], ["a\n", "b\n"]),
        (["a", "\nb"], ["a\n", "b\n"]),
        (["a", "The answer is 3."], ["a\n", "The answer is 3."]),
        (["The answer is 3.", "No."], ["The answer is 3.\n", "No.\n"]),
        (["So \\boxed{3}"], ["So \\boxed{3}"]),
    ],
)
def test_steps_end_as_those_of_the_training_data_do(tmp_path, steps, read):
    assert list(scored(write(tmp_path / "s.jsonl", {"question": "q", "steps": steps}))[0].completions) == read


def test_each_path_of_a_tree_is_a_solution(tmp_path):
    steps = [{"text": text, "rating": 1} for text in ("one", "two good", "two bad")]
    row = {
        "question": {"problem": "q"},
        "label": {
            "steps": [
                {"completions": [steps[0]], "chosen_completion": 0},
                {"completions": steps[1:], "chosen_completion": 0},
            ],
            "finish_reason": "solution",
        },
    }
    found = scored(write(tmp_path / "s.jsonl", row), format="prm800k")
    assert [(line.row, line.places, line.score) for line in found] == [(1, (0, 1), 0.9), (1, (0, 2), 0.2)]
    assert found[0].completions == ("one\n", "two good\n")


def test_a_large_file_is_scored_in_parts_and_told(tmp_path):
    path = write(tmp_path / "s.jsonl", *({"question": f"q{i}", "steps": ["a", "b"]} for i in range(PART)))
    model, told = Good("prm"), []
    file = read_solutions(path, gold=False)
    lines = score_file(model, file, STEPS, None, lambda done, total: told.append((done, total)))
    assert next(lines).row == 1
    assert model.calls == [PART]
    assert len(list(lines)) == PART - 1
    assert told == [(PART // 2, PART), (PART, PART)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "there is no such folder"),
        ("file.txt", "it is a file"),
        ("empty", "holds no reward.json"),
        ("half", "its training has not ended. The same `treeforge train` command"),
        ("policy", "it is a policy, of --task policy"),
        ("plain", "a model without a reward.json"),
        ("run", "it is a run. Train one from its export"),
        ("damaged", "is damaged"),
        ("newer", "is of version 99, not 1"),
        ("foreign", "was trained for the prompt format 'other/9'"),
    ],
)
def test_what_is_no_reward_model(tmp_path, name, said, capsys):
    (tmp_path / "file.txt").write_text("mine")
    files = {"half": "training.json", "plain": "config.json", "run": "manifest.json", "empty": "notes.txt"}
    files["policy"] = "policy.json"
    texts = {"damaged": "{", "newer": '{"version": 99}', "foreign": '{"version": 1, "prompt": "other/9"}'}
    for folder in {**files, **texts}:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / files.get(folder, "reward.json")).write_text(texts.get(folder, "{}"))
    with pytest.raises((ConfigError, DataError)) as caught:
        load_reward_model(str(tmp_path / name))
    assert said in str(caught.value)
    solutions = write(tmp_path / "s.jsonl", {"question": "q", "steps": ["a"]})
    assert invoke(["score", str(tmp_path / name), str(solutions)]) == 2
    assert said in capsys.readouterr().err


def by_good(inputs):
    return [0.9 if text.strip().endswith("good") else 0.2 for text in inputs]


def test_the_command_writes_a_line_a_solution_and_a_table(tmp_path, capsys):
    path = write(tmp_path / "s.jsonl", {"question": "q", "steps": ["bad", "good"]}, {"question": "r", "steps": ["bad"]})
    with RewardServer(by_good) as server:
        place = f"{server.url}?task=hrm"
        assert invoke(["score", place, str(path), "--out", str(tmp_path / "out.jsonl"), "--quiet"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert out.splitlines()[0] == f"hrm (hrm): 2 solutions, 3 steps -> {tmp_path / 'out.jsonl'}"
        assert "  hierarchical    0.5500  0.2000  0.5500  0.9000" in out
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [line["score"] for line in lines] == [0.9, 0.2]
        assert lines[0]["pairs"] == [0.9]

        assert invoke(["score", place, str(path), "--aggregate", "min", "--quiet"]) == 0
        out, err = capsys.readouterr()
        assert [json.loads(line)["score"] for line in out.splitlines()] == [0.2, 0.2]
        assert "2 solutions" in err

        assert invoke(["score", place, str(path), "--out", str(tmp_path / "out.jsonl"), "--quiet", "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["solutions"], summary["steps"], summary["truncated"]) == (2, 3, 0)
        assert summary["scores"]["last"]["mean"] == pytest.approx(0.55)


def test_a_file_is_whole_or_not_there(tmp_path, capsys):
    path, out = write(tmp_path / "s.jsonl", {"question": "q", "steps": ["bad"]}), tmp_path / "out.jsonl"
    out.write_text("before")
    with RewardServer(by_good) as server:
        server.script(400)
        assert invoke(["score", f"{server.url}?task=hrm", str(path), "--out", str(out)]) == 2
    assert out.read_text() == "before"
    assert "told to answer 400" in capsys.readouterr().err


def test_text_of_a_model_reaches_no_terminal(tmp_path, capsys):
    path = write(tmp_path / "s.jsonl", {"question": "q", "steps": ["\x1b[31mred\u202e <b>good"]})
    with RewardServer(by_good) as server:
        assert invoke(["score", f"{server.url}?task=hrm", str(path), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out)["completions"] == ["\x1b[31mred\u202e <b>good\n"]


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([], [], "has no rows"),
        ([{"question": "q", "steps": []}], [], "s.jsonl:1: field 'steps'"),
        ([{"question": "q", "steps": ["a", " "]}], [], "s.jsonl:1: field 'steps[1]'"),
        ([{"steps": ["a"]}], [], "there is no question field"),
        ([{"question": "q", "steps": ["a"] * 9999}], [], "has 9,999 steps, more than"),
        ([{"question": "q", "steps": ["a"]}], ["--aggregate", "median"], "aggregate 'median' is none of min"),
        ([{"question": "q", "steps": ["a"]}], ["--tag", "x"], "--tag is for --format math-shepherd"),
        ([{"question": "q", "steps": ["a"]}], ["--format", "prm", "--solution-field", "x"], "is for plain rows"),
        ([{"question": "q", "steps": ["a"]}], ["--out", "SAME"], "is read by this command"),
        ([{"question": "q", "steps": ["a"]}], ["--out", "FOLDER"], "is a folder; name a file"),
    ],
)
def test_bad_input(tmp_path, rows, options, said, capsys):
    path = write(tmp_path / "s.jsonl", *rows)
    options = [{"SAME": str(path), "FOLDER": str(tmp_path)}.get(option, option) for option in options]
    assert invoke(["score", "http://127.0.0.1:9?task=prm", str(path), *options]) == 2
    assert said in capsys.readouterr().err


def test_a_step_scorer_asks_for_all_candidates_at_once():
    model = Good()
    scorer = StepScorer(model)
    problem = make_problem("q", "1")
    assert scorer.score_many(problem, [["a bad\n"], ["a bad\n", "good\n"], ["good\n"]]) == [0.2, 0.9, 0.9]
    assert len(model.calls) == 1
    assert scorer(problem, ["a bad\n", "good\n"]) == 0.9
    assert StepScorer(model, "min")(problem, ["a bad\n", "good\n"]) == 0.2
    assert StepScorer(model).identity != StepScorer(model, "min").identity
    model.probabilities = lambda windows: np.array([0.123456] * len(windows))
    assert scorer(problem, ["x"]) == 0.1235


class Shorter:
    """A reward model that likes short steps."""

    name, identity, task = "shorter", "1", "prm"

    def __init__(self):
        self.calls = []

    def probabilities(self, windows):
        assert all(isinstance(window, Window) for window in windows)
        self.calls.append(len(windows))
        return np.array([1 / (1 + len(window.current)) for window in windows])


def test_the_best_of_n_next_steps_is_kept(tmp_path):
    """The HRM paper's inference: beam search of width 1."""
    config = scripted_config(strategy="beam", children=8, beam={"width": 1})
    model = Shorter()
    result = pipeline.run(problems(3), tmp_path / "run", config, scorer=StepScorer(model))
    assert result.statuses == {"done": 3}
    for _, record in RunFolder.open(tmp_path / "run").records([0, 1, 2]):
        tree = record.tree
        grown = [node for node in range(tree.size) if (tree.parent == node).any()]
        for node in grown[1:]:
            siblings = [row for row in range(tree.size) if tree.parent[row] == tree.parent[node]]
            assert len(tree.text[node]) == min(len(tree.text[row]) for row in siblings)
        assert len(grown) == len({int(tree.depth[node]) for node in grown})
    assert set(pipeline.replay(tmp_path / "run", scorer=StepScorer(Shorter())).files.values()) == {"same"}
    with pytest.raises(
        RecipeChangedError, match=r"(?s)scorer: .*reward model \(prm\), min, 1.*--reward and --aggregate"
    ):
        pipeline.replay(tmp_path / "run", scorer=StepScorer(Shorter(), "mean"))


def test_a_batch_scorer_that_forgets_some_stops_the_run(tmp_path):
    class Forgetful(StepScorer):
        def score_many(self, problem, candidates):
            return super().score_many(problem, candidates)[1:]

    with pytest.raises(ScorerError, match=r"Forgetful failed .* score_many gave \d+ scores for \d+ candidates"):
        pipeline.run(problems(2), tmp_path / "run", scripted_config(strategy="beam"), scorer=Forgetful(Shorter()))


def test_a_run_by_a_reward_model_on_the_command_line(tmp_path, capsys):
    run, more = tmp_path / "run", tmp_path / "more.jsonl"
    path = write(tmp_path / "p.jsonl", *({"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(3)))
    write(more, {"question": "What is 7 + 7?", "answer": "14"})
    common = ["run", str(path), "--out", str(run), "--policy", "scripted", "--quiet", "--set", "search.children=4"]
    beam = ["--strategy", "beam", "--set", "search.beam.width=1"]

    def shorter(inputs):
        return [1 / len(text) for text in inputs]

    with RewardServer(shorter) as server:
        reward = ["--reward", f"{server.url}?task=prm"]
        assert invoke([*common, *reward]) == 2
        assert "--reward ranks the candidates of --strategy beam, not of mcts" in capsys.readouterr().err
        assert invoke([*common, *beam, "--aggregate", "min"]) == 2
        assert "name it by --reward" in capsys.readouterr().err
        assert not run.exists()
        assert invoke([*common, *beam, *reward]) == 0
        assert server.posts
        asked = len(server.posts)
        assert invoke(["replay", str(run), *reward]) == 0
        assert len(server.posts) == 2 * asked
        for command in (["replay", str(run)], ["extend", str(run), "--problems", str(more), "--quiet"]):
            capsys.readouterr()
            assert invoke(command) == 2
            assert "by --reward and --aggregate" in capsys.readouterr().err
        assert invoke(["resume", str(run), *reward, "--aggregate", "mean", "--quiet"]) == 2
        assert invoke(["resume", str(run), *reward, "--quiet"]) == 0
        assert "4 done" in capsys.readouterr().out
