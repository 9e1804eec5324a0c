"""What the dataset card says of a run's compression."""

import msgspec

from treeforge.card_info import MAX_DEPTHS, _compression
from treeforge.compress import CompressReport, DepthReport


def state(depths):
    by_depth = {
        depth: DepthReport(eligible=4, merges=2, changed=1, hard_flips=1, shift_sum=depth / 10, shift_max=depth / 10)
        for depth in depths
    }
    report = msgspec.to_builtins(CompressReport(trees=3, merges=2 * len(by_depth), by_depth=by_depth))
    report["by_depth"] = {str(depth): found for depth, found in report["by_depth"].items()}
    return {"config": {"compress": {"probability": 0.5}}, "report": report}


def test_the_card_has_a_line_a_depth_and_sums_the_deep_ones():
    said = _compression(state([1, 2, *range(10, 30)]))
    lines = {name: line for name, line in said.items() if "depth" in name}
    assert list(lines) == [
        *(f"merges at depth {depth}" for depth in (1, 2, *range(10, 18))),
        "merges at depth 18 and more",
    ]
    assert len(lines) == MAX_DEPTHS + 1
    assert lines["merges at depth 2"] == (
        "2 of 4 nodes; 1 values moved, by 0.1 in the mean and 0.2 at most; 1 hard labels flipped"
    )
    assert lines["merges at depth 18 and more"].startswith("24 of 48 nodes; 12 values moved, by 1.18")
    assert said["probability"] == "0.5"
    assert said["trees"] == "3"


def test_few_depths_have_no_rest():
    assert [name for name in _compression(state([1, 2])) if "depth" in name] == [
        "merges at depth 1",
        "merges at depth 2",
    ]
    assert not [name for name in _compression(state([])) if "depth" in name]
