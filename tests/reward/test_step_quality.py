"""Step scores against people's labels: figures worked by hand, thresholds against every threshold, real files."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reward_models import FunctionModel

from treeforge.errors import ConfigError, DataError
from treeforge.reward.step_quality import best_threshold, step_quality
from treeforge.stats.step_labels import HumanLabels

PRM800K = Path(__file__).resolve().parents[3] / "shared" / "data" / "prm800k_phase1_test.jsonl"


def processbench(path, *solutions):
    """Steps as texts that end in their score, and the first wrong one."""
    rows = [
        {"id": str(n), "problem": question, "steps": steps, "label": label, "final_answer_correct": label < 0}
        for n, (question, steps, label) in enumerate(solutions)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def stated(window):
    """The score that the window's last step ends with."""
    return float(window.current.split()[-1])


SOLUTIONS = (
    ("P?", ["a 0.9", "b 0.8", "c 0.6"], -1),
    ("Q?", ["a 0.9", "b 0.4", "c 0.2"], 1),
    ("R?", ["a 0.7", "b 0.3"], 0),
    ("S?", ["a 0.55"], -1),
)
"""People: P + + +, Q + -, R -, S +. Below 0.5: Q's second step, which is its first wrong one; R's second, too late."""


def test_figures_worked_by_hand(tmp_path):
    (found,) = step_quality([FunctionModel(stated)], processbench(tmp_path / "p.jsonl", *SOLUTIONS))
    assert (found.model, found.by, found.threshold) == ("model", "single", 0.5)
    errors = found.quality.first_errors
    assert (errors.solutions, errors.erroneous.value, errors.correct.value) == (4, 0.5, 1)
    assert errors.f1.value == pytest.approx(2 * 0.5 / 1.5)
    # Labelled steps: right 0.9 0.8 0.6 0.9 0.55, wrong 0.4 0.7.
    assert found.quality.steps.agreement.value == pytest.approx(6 / 7)
    assert found.auc.value == pytest.approx((5 + 3) / 10)
    assert found.auc.low <= found.auc.value <= found.auc.high


def test_a_threshold_of_ones_own(tmp_path):
    file = processbench(tmp_path / "p.jsonl", *SOLUTIONS)
    (found,) = step_quality([FunctionModel(stated)], file, threshold=0.75)
    # P's third step is below it, Q's second, R's first, S's only one.
    errors = found.quality.first_errors
    assert (errors.erroneous.value, errors.correct.value) == (1, 0)
    (none,) = step_quality([FunctionModel(stated)], file, threshold=0)
    assert (none.quality.first_errors.erroneous.value, none.quality.first_errors.correct.value) == (0, 1)


def test_the_best_threshold_of_another_file(tmp_path):
    file = processbench(tmp_path / "p.jsonl", *SOLUTIONS)
    tuned = processbench(tmp_path / "t.jsonl", ("T?", ["a 0.9", "b 0.78"], -1), ("U?", ["a 0.9", "b 0.7"], 1))
    (found,) = step_quality([FunctionModel(stated)], file, threshold_from=tuned)
    assert found.threshold == pytest.approx(0.74)
    assert found.quality.first_errors.erroneous.value == 1


solutions = st.lists(
    st.tuples(st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]), min_size=1, max_size=4), st.integers(-1, 3)),
    min_size=2,
    max_size=6,
)


@settings(max_examples=60)
@given(solutions)
def test_no_threshold_has_a_better_f1(drawn):
    human, scores = HumanLabels(), {}
    for number, (values, wrong) in enumerate(drawn):
        keys = [f"{number} {place}".encode() for place in range(len(values))]
        scores |= dict(zip(keys, values, strict=True))
        human.solutions.append((keys, min(wrong, len(values) - 1)))

    def f1(threshold):
        hits = {True: [], False: []}
        for keys, wrong in human.solutions:
            first = next((place for place, key in enumerate(keys) if scores[key] < threshold), -1)
            hits[wrong >= 0].append(first == wrong)
        found, sound = np.mean(hits[True]), np.mean(hits[False])
        return 2 * found * sound / (found + sound) if found + sound else 0.0

    kinds = {wrong >= 0 for _, wrong in human.solutions}
    if len(kinds) == 1:
        with pytest.raises(DataError, match="with an error and solutions without"):
            best_threshold(human, scores, Path("file"))
        return
    best = best_threshold(human, scores, Path("file"))
    assert 0 <= best <= 1
    assert f1(best) == pytest.approx(max(f1(threshold) for threshold in np.linspace(0, 1, 41)))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.9]), st.booleans()), min_size=1, max_size=8))
def test_the_auc_is_the_share_of_pairs_in_order(tmp_path_factory, drawn):
    file = tmp_path_factory.mktemp("auc") / "p.jsonl"
    rows = [(f"P{n}?", [f"step {score}"], -1 if right else 0) for n, (score, right) in enumerate(drawn)]
    (found,) = step_quality([FunctionModel(stated)], processbench(file, *rows))
    pairs = list(product([s for s, right in drawn if right], [s for s, right in drawn if not right]))
    if not pairs:
        assert found.auc.value is None
    else:
        assert found.auc.value == pytest.approx(np.mean([(a > b) + (a == b) / 2 for a, b in pairs]))


def test_the_pairs_of_an_hrm(tmp_path):
    def hrm(window):
        # The first of two steps is wrong, the two together are right.
        return {"a": 0.2, "b": 0.9, "a b": 0.8}[" ".join(window.current.split())]

    found = step_quality([FunctionModel(hrm, "hrm")], processbench(tmp_path / "p.jsonl", ("P?", ["a", "b"], 0)))
    assert [row.by for row in found] == ["single", "pair", "hierarchical"]
    # A step that is corrected is wrong by itself and in the pair that it ends, and not lost in the hierarchy.
    assert [row.quality.first_errors.erroneous.value for row in found] == [1, 1, 0]

    def later(window):
        # The second step looks right, but not after the first.
        return {"a": 0.9, "b": 0.8, "a b": 0.3}[" ".join(window.current.split())]

    found = step_quality([FunctionModel(later, "hrm")], processbench(tmp_path / "p.jsonl", ("P?", ["a", "b"], 1)))
    assert [row.quality.first_errors.erroneous.value for row in found] == [0, 1, 0]


def test_steps_are_shown_as_a_policy_writes_them(tmp_path):
    seen = []

    def look(window):
        seen.append((window.previous, window.current))
        return 0.5

    rating = {"text": "a", "rating": 1}
    steps = [
        {"completions": [rating, {"text": "b", "rating": -1}], "chosen_completion": 0},
        {"completions": [{"text": "c\n\n# Answer\n\n1", "rating": 1}], "chosen_completion": 0},
    ]
    row = {"question": {"problem": "P?"}, "label": {"steps": steps, "finish_reason": "solution"}}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n")
    (found,) = step_quality([FunctionModel(look)], tmp_path / "r.jsonl")
    # Whether people went on from a step must not show in it.
    assert sorted(seen) == [("", "a\n\n"), ("", "b\n\n"), ("a\n\n", "c\n\n# Answer\n\n1")]
    assert found.quality.human_steps == 3
    # Nor do pairs that a step begins count there.
    assert [row.by for row in step_quality([FunctionModel(look, "hrm")], tmp_path / "r.jsonl")] == ["single", "pair"]
    seen.clear()
    step_quality([FunctionModel(look)], processbench(tmp_path / "p.jsonl", ("P?", ["a", "b"], -1)))
    assert seen == [("", "a\n\n"), ("a\n\n", "b")]


def test_what_cannot_be_measured(tmp_path):
    model, file = FunctionModel(stated), processbench(tmp_path / "p.jsonl", *SOLUTIONS)
    orm = FunctionModel(stated, "orm", name="whole")
    with pytest.raises(ConfigError, match="an ORM judges whole solutions"):
        step_quality([orm], file)
    assert [row.model for row in step_quality([orm, model], file)] == ["model"]
    with pytest.raises(ConfigError, match=r"--threshold: 1\.5"):
        step_quality([model], file, threshold=1.5)
    with pytest.raises(DataError, match="no labelled step"):
        step_quality([model], processbench(tmp_path / "none.jsonl"))
    with pytest.raises(DataError, match=r"q\.jsonl:2.*label.*is 7"):
        step_quality([model], processbench(tmp_path / "q.jsonl", *SOLUTIONS[:1], ("P?", ["a 1"], 7)))
    with pytest.raises(DataError, match=r"t\.jsonl.*with an error"):
        step_quality([model], file, threshold_from=processbench(tmp_path / "t.jsonl", *SOLUTIONS[:1]))


@pytest.mark.slow
def test_ratings_of_prm800k():
    if not PRM800K.exists():
        pytest.skip("the public data set prm800k_phase1_test.jsonl is not beside this checkout (../shared/data)")
    models = [
        FunctionModel(lambda window: 1 / (1 + len(window.current)), "hrm", name="short is right"),
        FunctionModel(lambda window: 0.5, name="blind"),
    ]
    found = step_quality(models, PRM800K)
    assert [(row.model, row.by) for row in found] == [
        ("short is right", "single"),
        ("short is right", "pair"),
        ("blind", "single"),
    ]
    blind = found[2]
    assert blind.quality.steps.steps == blind.quality.human_steps > 3000
    assert blind.auc.value == 0.5
    assert blind.quality.steps.agreement.value == pytest.approx(
        1 - blind.quality.steps.wrong / blind.quality.steps.steps
    )
    assert blind.quality.first_errors.correct.value == 1
