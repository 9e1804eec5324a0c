"""What an export leaves out on request."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.forest import blocks, export_tree, forest, grow

from treeforge.config import ExportConfig
from treeforge.configuration import convert
from treeforge.errors import ConfigError, DataError
from treeforge.export import CardInfo, export
from treeforge.export.filters import Benchmarks
from treeforge.export.filters.balance import _balanced
from treeforge.export.filters.duplicates import Duplicates, _grams, _jaccard, normalise
from treeforge.export.formats import FORMATS, Rows
from treeforge.tree import TREE_FIELDS, Tree

CARD = CardInfo()


def write(trees, out, formats=("hrm",), **config):
    config = ExportConfig(formats=formats, validation_share=0.2, rows_per_shard=100, **config)
    report = export(blocks(trees), out, config, CARD)
    frames = {}
    for format in report.formats:
        files = sorted((out / format.folder).glob("*.parquet"))
        frames[format.name] = pl.concat([pl.read_parquet(file) for file in files])
    return report, frames, (out / "README.md").read_text()


def test_labels_with_few_outcomes_or_a_wide_interval_go(tmp_path):
    trees = forest(20)
    report, frames, card = write(trees, tmp_path / "out", ("hrm", "prm", "nodes"), min_rollouts=4, max_interval=0.19)
    assert frames["hrm"]["rollouts"].min() == 4
    assert (frames["hrm"]["high"] - frames["hrm"]["low"]).max() <= 0.19
    assert min(frames["prm"]["rollouts"].list.min()) == 4
    nodes = frames["nodes"]
    assert nodes.height == 20 * 12, "the nodes stay"
    strong = (nodes["value_rollouts"] >= 4) & (nodes["high"] - nodes["low"] <= 0.19)
    assert nodes["hard"].is_not_null().to_list() == (strong & nodes["value"].is_not_null()).to_list()
    dropped = sum(int((tree.hard >= 0).sum()) for tree in trees) - int(nodes["hard"].is_not_null().sum())
    assert sum(report.dropped.values()) == dropped > 0
    assert "dropped: label: fewer than 4 outcomes" in card


def test_balance_is_exact_and_depends_on_little(tmp_path):
    report, frames, card = write(forest(40), tmp_path / "out", ("hrm", "orm", "nodes"), balance=True)
    for format in report.formats[:2]:
        for split in format.splits.values():
            assert split.positive == split.negative > 0
            assert split.rows == split.positive + split.negative
    assert frames["nodes"].height == 40 * 12
    assert "balanced" in card
    _, everything, _ = write(forest(40), tmp_path / "all", ("hrm",))
    kept, rows = frames["hrm"], everything["hrm"]
    minority = rows.filter(pl.col("hard") == (rows["hard"].mean() < 0.5))
    assert kept.join(minority, on=["tree_id", "node_id", "span"], how="semi").height >= 0.9 * minority.height
    assert rows.join(kept, on=["tree_id", "node_id", "span"], how="semi").equals(kept), "the order stays"
    assert not list(tmp_path.rglob("*.arrow"))


def test_balanced_twice_is_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write(forest(30), tmp_path / name, ("hrm", "prm"), balance=True, dedupe="near")
    a, b = ({str(f.relative_to(tmp_path / n)): f.read_bytes() for f in (tmp_path / n).rglob("*.*")} for n in ("a", "b"))
    assert a == b


@given(st.lists(st.sampled_from([-1, 0, 1]), max_size=60))
def test_balanced_keeps_all_of_the_rarer_label(labels):
    labels = np.array(labels, np.int8)
    keep = _balanced(labels, np.arange(len(labels), dtype=np.uint64)[::-1].copy())
    counts = [int((labels[keep] == label).sum()) for label in (0, 1)]
    assert counts[0] == counts[1] == min(int((labels == label).sum()) for label in (0, 1))
    assert keep[labels == -1].all()


def rows(texts, labels=None):
    labels = np.array(labels or [1] * len(texts), np.int8)
    return Rows({"completion": texts, "label": labels}, len(texts), {}, labels)


def kept(texts, near=None, labels=None):
    found = Duplicates(FORMATS["orm"], near).keep(rows(texts, labels))
    return list(found.columns["completion"])


def test_exact_duplicates():
    assert kept(["So 3.", "so  3", "So 4.", "So -3."]) == ["So 3.", "So 4.", "So -3."]
    assert kept(["So 3.", "So 3."], labels=[1, 0]) == ["So 3.", "So 3."], "another label is another row"
    assert normalise("A.\n B,  c!") == "a b c"


def test_near_duplicates():
    long = "We add the three numbers and divide their sum by the count, which gives the mean of twelve."
    texts = [
        long,
        long.replace("add", "sum"),
        "Something else entirely, with other words and another result: 7.",
        long + "!",
    ]
    assert kept(texts) == texts[:3]
    assert kept(texts, 0.8) == [texts[0], texts[2]]
    assert kept(texts, 0.99) == texts[:3]
    assert kept(["3", "4", "3"], 0.8) == ["3", "4"], "short texts are compared whole"


@given(st.text(max_size=80), st.text(max_size=80))
def test_similarity_is_jaccards(a, b):
    def grams(text):
        data = text.encode().ljust(5)
        return {data[i : i + 5] for i in range(len(data) - 4)}

    expected = len(grams(a) & grams(b)) / len(grams(a) | grams(b))
    assert _jaccard(_grams(a), _grams(b)) == pytest.approx(expected)


def test_problems_with_the_same_question_count_once(tmp_path):
    trees = [export_tree(1, question="What is 1 + 1?"), export_tree(2, question="what is  1 + 1")]
    report, frames, _ = write(trees, tmp_path / "out", dedupe="exact")
    assert frames["hrm"]["tree_id"].unique().to_list() == [1]
    assert report.dropped == {"problem: the question of an earlier one": 1}


def test_duplicate_steps_of_one_tree_go(tmp_path):
    twice = grow(5, size=12, text="Same.\n")
    tree = export_tree(5, tree=twice)
    tree.hard[1:] = 1
    _, before, _ = write([tree], tmp_path / "all")
    report, frames, _ = write([tree], tmp_path / "out", dedupe="exact")
    unique = before["hrm"].unique(["previous", "current", "span", "hard"])
    assert frames["hrm"].height == unique.height < before["hrm"].height
    assert report.formats[0].left_out["duplicate row"] == before["hrm"].height - unique.height


QUESTION = "A farmer has seventeen red hens and buys nine more at the market; how many hens has he now?"


def benchmark(path, *questions, field="Problem"):
    path.write_text("".join(json.dumps({field: q, "note": 1}) + "\n" for q in questions))
    return str(path)


def test_problems_of_a_benchmark_are_left_out_and_listed(tmp_path):
    trees = [
        export_tree(1, question="In short: a farmer has SEVENTEEN red hens, and buys nine more at the market. So?"),
        export_tree(2, question="What is 1 + 1?"),
        export_tree(3, question="Short one"),
    ]
    file = benchmark(tmp_path / "bench.jsonl", QUESTION, "short  one!", "What is 1 + 1? Give a number.")
    report, frames, card = write(trees, tmp_path / "out", decontaminate=(file,))
    ids = (trees[0].problem.problem_id, trees[2].problem.problem_id)
    assert report.contaminated == {"bench.jsonl": ids}
    assert frames["hrm"]["tree_id"].unique().to_list() == [2]
    assert " ".join(ids) in card
    assert str(tmp_path) not in card
    longer, _, _ = write(trees, tmp_path / "longer", decontaminate=(file,), ngram=14)
    assert longer.contaminated == {"bench.jsonl": ids[1:]}


def test_nothing_is_left_after_decontamination(tmp_path):
    file = benchmark(tmp_path / "bench.jsonl", "Short one", field="question")
    with pytest.raises(DataError, match=r"every problem shares an n-gram with a benchmark \(bench.jsonl\)"):
        write([export_tree(3, question="Short one")], tmp_path / "out", decontaminate=(file,))


def test_a_benchmark_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"missing\.jsonl"):
        write(forest(2), tmp_path / "out", decontaminate=(str(tmp_path / "missing.jsonl"),))
    file = benchmark(tmp_path / "bench.jsonl", "text", field="body")
    with pytest.raises(DataError, match="holds no question"):
        write(forest(2), tmp_path / "out", decontaminate=(file,))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "bench.jsonl: is empty"),
        ([{"question": "a b"}, {"question": 5}], r"bench.jsonl:2: field 'question': a question must be text, not int"),
        ([{"Problem": ["a"]}], r"bench.jsonl:1: field 'problem': a question must be text, not list"),
        ([{"body": "a", "id": 1}], r"holds no question; it has body, id. The column must be one of"),
        ([{"question": None}], "holds no question; it has question"),
    ],
)
def test_a_benchmark_file_without_questions_says_what_is_wrong(tmp_path, rows, message):
    file = tmp_path / "bench.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=message):
        Benchmarks((str(file),), 13)


WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6)


@given(st.lists(WORDS, min_size=1, max_size=4), WORDS, st.integers(1, 4))
def test_shared_n_grams_are_those_of_the_words(tmp_path_factory, known, asked, n):
    def grams(words):
        return {tuple(words[i : i + n]) for i in range(max(len(words) - n, 0) + 1)} - {()}

    file = benchmark(tmp_path_factory.mktemp("bench") / "b.jsonl", *map(" ".join, known))
    shared = set().union(*map(grams, known)) & grams(asked)
    assert Benchmarks((file,), n).source(" ".join(asked)) == ("b.jsonl" if shared else None)


@pytest.mark.parametrize("name", ["prm", "math-shepherd", "prm800k", "rlhflow", "processbench"])
def test_a_format_that_needs_labels_says_what_to_run(tmp_path, name):
    unlabelled = [replace(tree, hard=tree.hard * 0 - 1) for tree in forest(3)]
    with pytest.raises(DataError, match=f"nothing to export as '{name}'.*treeforge label"):
        write(unlabelled, tmp_path / "out", (name,))
    assert list(tmp_path.iterdir()) == []


def test_processbench_says_what_its_trajectories_lack(tmp_path):
    ends = sum(int((tree.record.tree.verdict >= 0).sum()) for tree in forest(3))
    unlabelled = [replace(tree, hard=tree.hard * 0 - 1) for tree in forest(3)]
    with pytest.raises(DataError, match=f"{ends} trajectories of nodes end, and each has a step without a hard label"):
        write(unlabelled, tmp_path / "out", ("processbench",))
    trees = []
    for tree in forest(3):
        nodes = tree.record.tree
        columns = {name: getattr(nodes, name) for name in TREE_FIELDS}
        still = Tree(**columns | {"verdict": nodes.verdict * 0 - 1, "finish": nodes.finish * 0})
        trees.append(replace(tree, record=replace(tree.record, tree=still)))
    with pytest.raises(DataError, match=r"no trajectory of nodes ends with an answer.*more simulations of mcts"):
        write(trees, tmp_path / "out", ("processbench",))


@pytest.mark.parametrize("name", ["kto", "orm", "sft"])
def test_a_format_that_needs_ended_trajectories_says_so(tmp_path, name):
    tree = export_tree(1)
    nodes = tree.record.tree
    columns = {name: getattr(nodes, name) for name in TREE_FIELDS}
    still = Tree(**columns | {"verdict": nodes.verdict * 0 - 1, "finish": nodes.finish * 0})
    with pytest.raises(DataError, match="no trajectory has ended"):
        write([replace(tree, record=replace(tree.record, tree=still))], tmp_path / "out", (name,))


def test_filters_that_leave_nothing_say_which(tmp_path):
    with pytest.raises(DataError, match=r"the filters leave no row of the format 'orm': .* fails the condition"):
        write(forest(3), tmp_path / "out", ("orm",), where="count > 1000")


@pytest.mark.parametrize(
    ("formats", "filters", "message"),
    [
        (("hrm",), {"min_rollouts": 1000}, r"leave no row of the format 'hrm': .* × label: fewer than 1000 outcomes"),
        (("hrm", "nodes"), {"max_interval": 0.01}, r"leave no row of the format 'hrm': .* interval wider"),
        (("nodes",), {"where": "depth > 1000"}, r"leave no row of the format 'nodes': .* fails the condition"),
        (("rl",), {"where": "ability = 'art'"}, r"leave no row of the format 'rl': 3 × row that fails the condition"),
        (("prm",), {"min_rollouts": 1000}, r"no step has a hard label \(.* × label: fewer than 1000 outcomes\)"),
    ],
)
def test_filters_that_leave_nothing_leave_the_dataset_that_was_there(tmp_path, formats, filters, message):
    write(forest(3), tmp_path / "out")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(DataError, match=message):
        write(forest(3), tmp_path / "out", formats, **filters)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_spans_that_no_step_has_name_those_there_are(tmp_path):
    deepest = max(int(tree.record.tree.depth[tree.hard >= 0].max()) for tree in forest(6))
    with pytest.raises(DataError, match=rf"spans are \[99\].*spans are 1 to {deepest} \(export.spans\)"):
        write(forest(6), tmp_path / "out", spans=(99,))
    _, frames, _ = write(forest(6), tmp_path / "out", spans=(deepest,))
    assert frames["hrm"].height > 0


def test_unlabelled_trees_without_filters_may_give_no_hrm_row(tmp_path):
    unlabelled = [replace(tree, hard=tree.hard * 0 - 1, soft=tree.soft * np.nan) for tree in forest(3)]
    report = export(blocks(unlabelled), tmp_path / "out", ExportConfig(min_rollouts=3), CARD)
    assert [format.rows for format in report.formats] == [0, 36]


@pytest.mark.parametrize(
    "setting",
    [
        {"spans": [0]},
        {"spans": []},
        {"spans": [1, 1]},
        {"similarity": 0},
        {"ngram": 0},
        {"min_rollouts": -1},
        {"min_rollouts": 2**31},
        {"rows_per_shard": 2**40},
        {"ngram": 2**31},
        {"solutions_per_problem": 2**31},
        {"dedupe": "fuzzy"},
        {"solution_order": "longest"},
    ],
)
def test_settings_that_cannot_be(setting):
    with pytest.raises(ConfigError):
        convert(setting, ExportConfig)


@pytest.mark.parametrize("how", ["exact", "near"])
def test_deduplication_of_problems_for_rl_goes_by_the_question(tmp_path, how):
    trees = [export_tree(number, question="How many?" if number < 3 else None) for number in range(6)]
    trees = [replace(tree, problem=replace(tree.problem, problem_id=f"p{tree.number}")) for tree in trees]
    report, frames, _ = write(trees, tmp_path / "out", ("rl",), dedupe=how)
    assert len(frames["rl"]) == 4
    assert report.dropped == {"problem: the question of an earlier one": 2}
