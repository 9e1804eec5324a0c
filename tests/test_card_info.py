"""What the dataset card says of a run's compression."""

import msgspec
import pytest

from treeforge.card_info import MAX_DEPTHS, _compression, _labels, _search
from treeforge.compress import CompressReport, DepthReport
from treeforge.config import BudgetConfig, LabelConfig, SearchConfig
from treeforge.configuration import to_dict


def state(depths):
    by_depth = {
        depth: DepthReport(eligible=4, merges=2, changed=1, hard_flips=1, shift_sum=depth / 10, shift_max=depth / 10)
        for depth in depths
    }
    report = msgspec.to_builtins(CompressReport(trees=3, eligible=1234, merges=2 * len(by_depth), by_depth=by_depth))
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
        "2 of 4 nodes; 1 value moved, by 0.1 in the mean and 0.2 at most; 1 hard label flipped"
    )
    assert lines["merges at depth 18 and more"].startswith("24 of 48 nodes; 12 values moved, by 1.18")
    assert said["chance that a node that may merge does"] == "0.5"
    assert said["trees"] == "3"
    assert said["merges"] == "44 of 1,234 nodes that may merge"


def test_few_depths_have_no_rest():
    assert [name for name in _compression(state([1, 2])) if "depth" in name] == [
        "merges at depth 1",
        "merges at depth 2",
    ]
    assert not [name for name in _compression(state([])) if "depth" in name]


def test_compression_is_in_words_and_counts_passes():
    said = _compression(state([1, 2]) | {"config": {"compress": {"passes": 2, "max_label_shift": 0.5}}})
    assert said["trees, counted again in each pass"] == "3"
    assert said["merges refused that move a value further than"] == "0.5"
    assert said["merges refused"] == "0"
    assert not {"alike", "shift sum", "observed sum"} & said.keys()


def test_what_cannot_move_is_not_counted():
    said = _compression(state([1, 2]), moves=False)
    assert said["merges at depth 1"] == "2 of 4 nodes"
    assert not [name for name in said if "moved" in name or "flipped" in name or "shift" in name]


def search(**settings):
    return _search({"search": to_dict(SearchConfig(**settings)), "budget": to_dict(BudgetConfig())}).keys()


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        ({"strategy": "mcts"}, {"max depth", "sample", "selection", "exploration", "prior", "expansions"}),
        (
            {"strategy": "mcts", "prior": "logprob", "widening": 1.0},
            {"max depth", "sample", "selection", "exploration", "prior", "prior temperature"}
            | {"widening", "widening power"},
        ),
        ({"strategy": "exhaustive"}, {"levels"}),
        ({"strategy": "omega"}, {"omega alpha", "omega beta", "omega length", "omega exploration"}),
        ({"strategy": "step-rollouts", "screen": 4}, {"solutions", "screen", "keep"}),
        ({"strategy": "step-rollouts", "given": True}, {"given"}),
        (
            {"strategy": "adaptive"},
            {"solutions", "adaptive target", "adaptive threshold", "adaptive min gain", "adaptive split"},
        ),
        ({"strategy": "best-of-n"}, {"solutions"}),
        ({"strategy": "beam"}, {"max depth", "beam width", "beam scorer"}),
    ],
)
def test_the_search_is_told_by_what_applies_to_its_strategy(settings, own):
    said = search(**settings)
    counted = {"budget simulations"} if settings["strategy"] in ("mcts", "omega") else set()
    assert said == {"strategy", "children", "max steps", "wave", "merge duplicates"} | own | counted


def test_all_keys_of_the_search_are_told_somewhere():
    keys = set()
    for strategy in ("mcts", "exhaustive", "omega", "step-rollouts", "adaptive", "best-of-n", "beam"):
        keys |= search(strategy=strategy, screen=4, prior="logprob") | search(strategy=strategy, widening=1)
    keys |= search(strategy="omega", given=True)
    flat = {name.replace("_", " ") for name in SearchConfig.__struct_fields__}
    assert flat <= keys | {"omega", "beam", "adaptive"}
    assert "omega further" in keys


def test_labels_from_elsewhere_have_no_evidence_to_tell_of():
    assert not {"prior", "confidence", "truncated", "min rollouts"} & _labels(LabelConfig(estimator="human")).keys()
    assert "confidence" in _labels(LabelConfig())
    assert "prior" in _labels(LabelConfig(estimator="smoothed"))
