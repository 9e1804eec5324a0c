from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.config import ExportConfig
from treeforge.export import split_of

SHARE = st.floats(0, 0.49)


def test_golden_splits_do_not_change_between_versions():
    config = ExportConfig(validation_share=0.3, test_share=0.3)
    assert [split_of(name, config) for name in ("a", "b", "gsm8k-17", "é", "")] == [
        "train",
        "train",
        "test",
        "test",
        "validation",
    ]


def test_shares_are_met():
    config = ExportConfig(validation_share=0.2, test_share=0.1)
    counts = Counter(split_of(f"problem-{i}", config) for i in range(20_000))
    assert counts["validation"] == pytest.approx(4000, abs=200)
    assert counts["test"] == pytest.approx(2000, abs=200)


def test_no_shares_put_everything_into_train():
    config = ExportConfig(validation_share=0, test_share=0)
    assert {split_of(str(i), config) for i in range(1000)} == {"train"}


@given(st.text(), SHARE, SHARE, SHARE)
def test_a_change_of_one_share_moves_between_train_and_that_split_only(problem_id, test, validation, other):
    before = split_of(problem_id, ExportConfig(validation_share=validation, test_share=test))
    after = split_of(problem_id, ExportConfig(validation_share=other, test_share=test))
    assert before == after or {before, after} == {"train", "validation"}
    after = split_of(problem_id, ExportConfig(validation_share=validation, test_share=other))
    assert before == after or {before, after} == {"train", "test"}
