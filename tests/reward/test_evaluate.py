"""Accuracy by N of a run's solutions: which samples count, what is kept, what is refused."""

from itertools import combinations

import msgspec
import numpy as np
import pytest
from support.folders import ended, engine_error, write_run
from support.reward_models import FunctionModel
from support.runs import problems, scripted_config

import treeforge as tf
from treeforge import views
from treeforge.errors import ConfigError, RecipeChangedError, RunError, StorageError
from treeforge.label.check_policy import check_policy
from treeforge.problem import make_problem
from treeforge.replay import compare
from treeforge.reward.evaluate import evaluate, grow_solutions
from treeforge.reward.samples import answer_groups, read_samples, same_answers
from treeforge.reward.select import NO_ANSWER
from treeforge.tree import Finish, Rollout, TreeBuilder
from treeforge.verdict import Verdict

SCORES = {"r": 0.6, "w": 0.9, "x": 0.3, "a": 0.7, "b": 0.5}
"""What the model says of a step by its first letter."""


def by_letter(window):
    return SCORES[window.current.rstrip().split("\n")[-1][0]]


def never(answer, other):
    return False


def add(builder, parent, text, verdict=None, answer="", count=1, finish=Finish.ANSWERED):
    if verdict is None:
        row = builder.add(parent, text)
    else:
        row = builder.add(parent, text, finish=finish, answer=answer, verdict=verdict)
    builder.multiplicity[row] = count
    return row


def small_tree():
    """Four samples: r twice right (0.6), w (0.7 below a) and x (0.3 below b) wrong with one answer."""
    builder = TreeBuilder()
    a = add(builder, 0, "a\n", count=3)
    b = add(builder, 0, "b\n")
    add(builder, a, "r 1", Verdict.CORRECT, "1", count=2)
    add(builder, a, "w 2", Verdict.INCORRECT, "2")
    add(builder, b, "x 2.0", Verdict.INCORRECT, "2.0")
    return builder.freeze()


def undecided_tree(count):
    builder = TreeBuilder()
    if count < 4:
        add(builder, 0, "r 1", Verdict.CORRECT, "1", count=4 - count)
    add(builder, 0, "w ?", Verdict.UNDECIDED, "?", count=count)
    return builder.freeze()


def best_of(path, *trees, solutions=4, **more):
    return write_run(path, trees, strategy="best-of-n", solutions=solutions, **more)


def accuracies(found, name):
    (curve,) = [curve for curve in found.curves if curve.name == name]
    return [point.accuracy.value for point in curve.points]


def test_a_problem_worked_by_hand(tmp_path):
    found = evaluate(best_of(tmp_path / "run", small_tree()), [FunctionModel(by_letter)], n=(1, 2, 4))
    # (score by the lowest step, right, answer) of the four samples.
    samples = [(0.6, 1, "1"), (0.6, 1, "1"), (0.7, 0, "2"), (0.3, 0, "2")]
    expected, vote, weighted = [], [], []
    for size in (1, 2, 4):
        subsets = list(combinations(samples, size))
        expected.append(np.mean([max(chosen)[1] for chosen in subsets]))
        ones = [sum(answer == "1" for _, _, answer in chosen) for chosen in subsets]
        vote.append(np.mean([1.0 if 2 * one > size else 0.5 if 2 * one == size else 0.0 for one in ones]))
        sums = [[sum(s for s, _, answer in chosen if answer == which) for which in "12"] for chosen in subsets]
        weighted.append(np.mean([float(one > two) for one, two in sums]))
    assert accuracies(found, "model") == pytest.approx(expected)
    assert accuracies(found, "model, vote") == pytest.approx(weighted)
    assert accuracies(found, "majority") == pytest.approx(vote)
    assert accuracies(found, "oracle") == pytest.approx([0.5, 5 / 6, 1])
    assert accuracies(found, "random") == pytest.approx([0.5, 0.5, 0.5])
    assert (found.problems, found.samples, found.undecided, found.left_out) == (1, 4, 0, {})


def test_the_samples_of_best_of_n_are_all_completions(tmp_path):
    builder = TreeBuilder()
    a = add(builder, 0, "a\n", count=5)
    add(builder, a, "r 1", Verdict.CORRECT, "1", count=2)
    add(builder, a, "x", Verdict.NO_ANSWER, finish=Finish.TRUNCATED)
    stopped = Rollout(a, (), "", Verdict.NO_ANSWER, Finish.STOP, 3, 0.0)
    silent = Rollout(0, (), "", Verdict.NO_ANSWER, Finish.STOP, 0, 0.0)
    further = Rollout(0, ("b\n", "w 2"), "2", Verdict.INCORRECT, Finish.ANSWERED, 9, -1.0)
    record = msgspec.structs.replace(
        ended(builder.freeze()), rollouts=(stopped, stopped, silent, silent, further, engine_error(0))
    )
    found = read_samples(record, never)
    assert dict(zip(found.steps, found.count.tolist(), strict=True)) == {
        ("a\n", "r 1"): 2,
        ("a\n", "x"): 1,
        ("a\n",): 2,
        (): 2,
        ("b\n", "w 2"): 1,
    }
    assert found.size == 8
    assert found.errors == 1
    assert found.correct.tolist() == [1, 0, 0, 0, 0]
    assert (found.answers == NO_ANSWER).tolist() == [False, True, True, True, False]


def test_completions_of_a_later_step_are_no_samples():
    builder = TreeBuilder()
    a = add(builder, 0, "a\n", count=2)
    add(builder, a, "r 1", Verdict.CORRECT, "1")
    stopped = Rollout(a, (), "", Verdict.NO_ANSWER, Finish.STOP, 3, 0.0)
    onward = Rollout(a, ("w 2",), "2", Verdict.INCORRECT, Finish.ANSWERED, 3, 0.0)
    whole = Rollout(0, ("b\n", "r 1"), "1", Verdict.CORRECT, Finish.ANSWERED, 3, 0.0)
    # One sample stopped after `a`; the second empty completion was asked from there.
    record = msgspec.structs.replace(ended(builder.freeze()), rollouts=(stopped, onward, stopped, whole))
    found = read_samples(record, never)
    assert found.steps == (("a\n", "r 1"), ("a\n",), ("b\n", "r 1"))
    assert found.count.tolist() == [1, 1, 1]


def test_answers_are_equal_as_the_checker_has_it():
    same = same_answers(check_policy("default"))
    answers = [
        ("1/2", Verdict.INCORRECT),
        ("0.5", Verdict.INCORRECT),
        ("3", Verdict.CORRECT),
        ("3.0", Verdict.CORRECT),
        ("7", Verdict.INCORRECT),
        ("", Verdict.NO_ANSWER),
        ("{((", Verdict.UNPARSABLE),
        ("{ ((", Verdict.UNPARSABLE),
        ("\\frac{1}{2}", Verdict.UNDECIDED),
    ]
    found = answer_groups(answers, same).tolist()
    assert found[0] == found[1] == found[8]
    assert found[2] == found[3] == 0
    assert found[5] == NO_ANSWER
    assert found[6] == found[7]
    assert len(set(found)) == 5


def test_scores_are_kept_and_paid_once(tmp_path):
    run = best_of(tmp_path / "run", small_tree(), small_tree())
    model = FunctionModel(by_letter, "hrm")
    first = evaluate(run, [model], n=(1, 4))
    assert model.asked > 0
    again = FunctionModel(by_letter, "hrm")
    assert evaluate(run, [again], n=(1, 4)) == first
    assert again.asked == 0
    # Another way to aggregate asks nothing either; another model does.
    evaluate(run, [again], n=(1, 4), aggregates=["min", "mean"])
    assert again.asked == 0
    other = FunctionModel(by_letter, "hrm", identity="another")
    assert evaluate(run, [other], n=(1, 4)) == first
    assert other.asked == model.asked


def test_a_stop_loses_one_part_at_most(tmp_path):
    questions = [make_problem(f"{n}?", "1") for n in range(40)]
    run = best_of(tmp_path / "run", *[small_tree()] * 40, problems=questions)

    class Stopped(FunctionModel):
        def probabilities(self, windows):
            if any(window.question == "35?" for window in windows):
                raise KeyboardInterrupt
            return super().probabilities(windows)

    stopped = Stopped(by_letter)
    with pytest.raises(KeyboardInterrupt):
        evaluate(run, [stopped], n=(4,))
    whole, rest = FunctionModel(by_letter, identity="whole"), FunctionModel(by_letter)
    assert evaluate(run, [rest], n=(4,)) == evaluate(run, [whole], n=(4,))
    assert stopped.asked + rest.asked == whole.asked
    assert 0 < rest.asked < stopped.asked


def test_solutions_that_came_later_are_scored(tmp_path):
    model = FunctionModel(by_letter)
    evaluate(best_of(tmp_path / "one", small_tree()), [model], n=(1,))
    builder = TreeBuilder()
    add(builder, 0, "x 1", Verdict.CORRECT, "1", count=4)
    more = best_of(tmp_path / "two", builder.freeze())
    (tmp_path / "one" / "scores").rename(more / "scores")
    asked = model.asked
    evaluate(more, [model], n=(1,))
    assert model.asked == asked + 1


def test_a_damaged_file_of_scores_is_named(tmp_path):
    run = best_of(tmp_path / "run", small_tree())
    evaluate(run, [FunctionModel(by_letter)], n=(1,))
    (file,) = (run / "scores").rglob("*.parquet")
    file.write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=r"part-00000\.parquet is damaged"):
        evaluate(run, [FunctionModel(by_letter)], n=(1,))


def test_a_replay_does_not_miss_the_scores(tmp_path):
    run = best_of(tmp_path / "run", small_tree())
    before = compare(run, run)
    evaluate(run, [FunctionModel(by_letter)], n=(1,))
    assert compare(run, run) == before


def test_verdicts_of_a_recheck_count(tmp_path):
    builder = TreeBuilder()
    add(builder, 0, "The answer is 0.", Verdict.INCORRECT, "0", count=2)
    run = best_of(tmp_path / "run", builder.freeze())  # 0 + 0 is 0, whatever the tree says
    assert accuracies(evaluate(run, n=(1,)), "random") == [0]
    views.recheck(run)
    assert accuracies(evaluate(run, n=(1,)), "random") == [1]


def test_problems_with_too_few_samples_are_left_out_at_every_n(tmp_path):
    few = TreeBuilder()
    add(few, 0, "r 1", Verdict.CORRECT, "1", count=2)
    failed = ended(small_tree(), "failed", "HTTP 400")
    found = evaluate(best_of(tmp_path / "run", small_tree(), few.freeze(), failed, undecided_tree(4)), n=(1, 4))
    assert found.left_out == {
        "fewer than 4 samples": 1,
        "a failed tree": 1,
        "no verdict: every answer is undecided": 1,
    }
    assert (found.problems, found.samples) == (1, 4)
    assert accuracies(found, "oracle") == [0.5, 1]
    smaller = evaluate(tmp_path / "run", n=(1, 2))
    assert smaller.problems == 2
    with pytest.raises(RunError, match=r"N = 8 \(.*3 fewer than 8 samples.*most samples of one problem are 4.*--n"):
        evaluate(tmp_path / "run", n=(8,))


def test_undecided_samples_count_as_wrong(tmp_path):
    found = evaluate(best_of(tmp_path / "run", undecided_tree(1)), n=(1,))
    assert found.undecided == 1
    assert accuracies(found, "random") == [0.75]


def test_runs_that_cannot_be_evaluated(tmp_path):
    growing = best_of(tmp_path / "growing", small_tree(), None)
    with pytest.raises(RunError, match=r"1 of 2 problems are open.*treeforge resume"):
        evaluate(growing, n=(1,))
    searched = write_run(tmp_path / "searched", [small_tree()], strategy="mcts")
    with pytest.raises(RunError, match=r"grown by mcts.*treeforge evaluate NEW_RUN"):
        evaluate(searched, n=(1,))
    with pytest.raises(RunError, match="no run folder"):
        evaluate(tmp_path / "nowhere", n=(1,))
    nothing = best_of(tmp_path / "nothing", TreeBuilder().freeze())
    with pytest.raises(RunError, match=r"no problem can be evaluated at N = 1 \(1 fewer than 1 samples\)$"):
        evaluate(nothing, n=(1,))


def test_imported_and_given_solutions_are_no_samples(tmp_path):
    run = best_of(tmp_path / "run", small_tree())
    folder = tf.RunFolder.open(run)
    folder.manifest["policy"] = {"backend": "imported"}
    folder.write_manifest()
    with pytest.raises(RunError, match="imported"):
        evaluate(run, n=(1,))
    folder.manifest |= {"policy": None, "given": {}}
    folder.write_manifest()
    with pytest.raises(RunError, match="given solutions"):
        evaluate(run, n=(1,))


def test_what_cannot_be_asked(tmp_path):
    run = best_of(tmp_path / "run", small_tree())
    model = FunctionModel(by_letter)
    for sizes, said in (((0, 1), "1 or more"), ((), "nothing"), ((2, 1, 2), "2 is there twice")):
        with pytest.raises(ConfigError, match=said):
            evaluate(run, [model], n=sizes)
    with pytest.raises(ConfigError, match=r"'median' is none of min, product"):
        evaluate(run, [model], n=(1,), aggregates=["median"])
    with pytest.raises(ConfigError, match="model is there twice"):
        evaluate(run, [model, model], n=(1,))
    with pytest.raises(ConfigError, match=r"number in \[0, 1\]"):
        evaluate(run, [FunctionModel(lambda window: float("nan"))], n=(1,))
    assert not (run / "scores").exists()


def test_models_side_by_side(tmp_path):
    run = tmp_path / "run"
    grow_solutions(problems(12), run, scripted_config(), solutions=8)

    def knows(window):
        last = window.current.rstrip().split("\n")[-1]
        return 0.9 if last.endswith("7.") else 0.8 * ("-" not in last and "answer" in last)

    models = [
        FunctionModel(knows, "orm", name="same", identity="0"),
        FunctionModel(knows, "orm", name="same", identity="1"),
        FunctionModel(lambda window: 0.5, "prm", name="blind"),
    ]
    found = evaluate(run, models, n=(1, 2, 8), aggregates=["min", "last"])
    assert [curve.name for curve in found.curves if curve.kind == "best-of-n"] == [
        "same (1)",
        "same (2)",
        "blind, min",
        "blind, last",
    ]
    curves = {curve.name: curve for curve in found.curves}
    # The last step says whether the answer is right: as good as can be.
    assert accuracies(found, "same (1)") == accuracies(found, "oracle")
    assert accuracies(found, "blind, min") == pytest.approx(accuracies(found, "random"))
    assert accuracies(found, "blind, last, vote") == pytest.approx(accuracies(found, "majority"), abs=0.1)
    # Differences are paired: none, with certainty, between the same; and less wide than what they are between.
    assert {tuple(msgspec.to_builtins(point.over_first).values()) for point in curves["same (2)"].points} == {(0, 0, 0)}
    assert [point.over_first for point in curves["same (1)"].points] == [None] * 3
    assert [point.over_majority for point in curves["majority"].points] == [None] * 3
    last = curves["same (1)"].points[-1]
    gain = last.accuracy.value - accuracies(found, "majority")[-1]
    assert last.over_majority.value == pytest.approx(gain)
    assert last.over_majority.low <= gain <= last.over_majority.high
    for curve in found.curves:
        for point in curve.points:
            assert point.accuracy.low <= point.accuracy.value <= point.accuracy.high
    assert evaluate(run, models, n=(1, 2, 8), aggregates=["min", "last"]) == found


def test_the_policy_is_paid_once(tmp_path):
    policy = tf.ScriptedPolicy()
    config = scripted_config()
    grow_solutions(problems(3), tmp_path / "run", config, solutions=8, policy=policy)
    asked = policy.requests
    assert asked > 0
    for fewer in (8, 4):
        assert grow_solutions(problems(3), tmp_path / "run", config, solutions=fewer, policy=policy) == tmp_path / "run"
    assert policy.requests == asked
    assert evaluate(tmp_path / "run", n=(8,)).samples == 24
    with pytest.raises(RunError, match=r"samples 8 solutions.*N = 16"):
        grow_solutions(problems(3), tmp_path / "run", config, solutions=16)
    with pytest.raises(RecipeChangedError, match="seed"):
        grow_solutions(problems(3), tmp_path / "run", scripted_config(seed=1), solutions=8)
    with pytest.raises(RecipeChangedError, match="problems"):
        grow_solutions(problems(4), tmp_path / "run", config, solutions=8)


def test_a_stopped_run_goes_on(tmp_path):
    config = scripted_config()

    class Stopping(tf.ScriptedPolicy):
        def sample_now(self, request):
            if self.requests >= 3:
                raise KeyboardInterrupt
            return super().sample_now(request)

    policy = Stopping()
    with pytest.raises(KeyboardInterrupt):
        grow_solutions(problems(3), tmp_path / "run", config, solutions=8, policy=policy)
    rest = tf.ScriptedPolicy()
    grow_solutions(problems(3), tmp_path / "run", config, solutions=8, policy=rest)
    assert evaluate(tmp_path / "run", n=(8,)).samples == 24
    assert rest.requests < 6
