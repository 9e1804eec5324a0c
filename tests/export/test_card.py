import re

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.forest import blocks, forest

from treeforge.config import ExportConfig
from treeforge.export import FORMATS, CardInfo, export
from treeforge.export.card import escape
from treeforge.export.front_matter import _size_category, yaml_string
from treeforge.export.front_matter import front_matter as yaml_lines
from treeforge.export.report import ExportReport, FormatReport, SplitReport

CONFIG = ExportConfig(formats=("nodes", "hrm"), rows_per_shard=100, validation_share=0.3, license="apache-2.0")
INFO = CardInfo(
    title="Sums | <b>of</b>\n---\ntags: [evil]",
    model={"model": "smollm2-135m", "digest": "b179c952"},
    sampling={"temperature": "0.8"},
    search={"strategy": "mcts"},
    checker={"policy": "default"},
    labels={"estimator": "policy_mean", "threshold": "0.5"},
    compression={"merges": "12", "mean shift": "0.03"},
    problems={"source": "word_problems.jsonl"},
    commands=("treeforge run word_problems.jsonl --seed 0", "treeforge export runs/first\n```\n# evil"),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("card") / "out"
    report = export(blocks(forest(30)), out, CONFIG, INFO)
    return (out / "README.md").read_text(encoding="utf-8"), report


def front_matter(card):
    assert card.startswith("---\n")
    return yaml.safe_load(card.split("\n---\n")[0].removeprefix("---\n"))


def test_front_matter(written):
    card, _ = written
    data = front_matter(card)
    assert data["license"] == "apache-2.0"
    assert data["task_categories"] == ["text-classification"]
    assert "reward-model" in data["tags"]
    assert data["size_categories"] == ["n<1K"]
    assert data["configs"] == [
        {
            "config_name": name,
            **({"default": True} if name == "nodes" else {}),
            "data_files": [
                {"split": split, "path": f"{folder}/{split}-*.parquet"} for split in ("train", "validation")
            ],
        }
        for name, folder in (("nodes", "data"), ("hrm", "hrm"))
    ]


def test_sizes_are_those_of_the_shards(tmp_path):
    export(blocks(forest(30)), tmp_path / "out", CONFIG, INFO)
    for info in front_matter((tmp_path / "out" / "README.md").read_text())["dataset_info"]:
        folder = "data" if info["config_name"] == "nodes" else info["config_name"]
        files = sorted((tmp_path / "out" / folder).glob("*.parquet"))
        assert info["download_size"] == sum(file.stat().st_size for file in files)
        splits = {split["name"]: split for split in info["splits"]}
        for name, split in splits.items():
            tables = [pq.read_table(file) for file in files if file.name.startswith(name)]
            assert split["num_examples"] == sum(table.num_rows for table in tables)
            assert split["num_bytes"] == pytest.approx(sum(table.nbytes for table in tables), rel=0.02)
        assert info["dataset_size"] == sum(split["num_bytes"] for split in splits.values())


@pytest.mark.parametrize("name", FORMATS)
def test_features_are_those_of_the_shards(name):
    datasets = pytest.importorskip("datasets")
    split = SplitReport(problems=1, rows=2, shards=1, arrow_bytes=30, file_bytes=20, positive=1, negative=1, pairs={})
    report = ExportReport(
        problems={"train": 1},
        formats=(FormatReport(name=name, folder="data", splits={"train": split}, left_out={}),),
    )
    [info] = yaml.safe_load("\n".join([*yaml_lines("T", "mit", report)][1:-1]))["dataset_info"]
    assert datasets.Features._from_yaml_list(info["features"]) == datasets.Features.from_arrow_schema(
        FORMATS[name].schema
    )
    read = datasets.DatasetInfo._from_yaml_dict(info)
    assert (read.splits["train"].num_examples, read.download_size, read.dataset_size) == (2, 20, 30)


def test_a_title_cannot_break_out_of_yaml_or_markdown(written):
    card, _ = written
    data = front_matter(card)
    assert "evil" not in data["tags"]
    assert data["pretty_name"] == "Sums | <b>of</b> --- tags: [evil]"
    assert "<b>" not in card.split("\n---\n", 1)[1]
    assert card.count("\n---\n") == 1


def test_a_command_cannot_break_out_of_its_block(written):
    card, _ = written
    block = card.split("## Make it again\n\n")[1]
    assert block == "    treeforge run word_problems.jsonl --seed 0\n    treeforge export runs/first ``` # evil\n"


def test_the_card_says_what_a_person_wants_to_know(written):
    card, report = written
    for text in (
        "smollm2-135m",
        "temperature",
        "mcts",
        "policy\\_mean",
        "mean shift",
        "What a label means",
        "30 problems",
    ):
        assert text in card
    for format in report.formats:
        for split, counts in format.splits.items():
            share = f"{counts.share_positive:.1%}"
            assert f"| {split} | {counts.rows:,} | {counts.problems} | {counts.shards} | {share} |" in card
    for format in (FORMATS[name] for name in CONFIG.formats):
        for column in format.columns:
            assert f"| `{column.name}` |" in card


def test_rows_without_a_label_have_a_dash_and_a_sentence(tmp_path):
    export(blocks(forest(10)), tmp_path / "out", ExportConfig(formats=("rl", "orm"), validation_share=0), INFO)
    rl, orm = (tmp_path / "out" / "README.md").read_text().split("## Configuration ")[1:]
    assert "| train | 10 | 10 | 1 | – |" in rl
    assert "A row of this format has no label of its own" in rl
    assert "no label of its own" not in orm


@pytest.mark.parametrize("estimator", ["human", "imported"])
def test_values_from_elsewhere_do_not_move(tmp_path, estimator):
    info = replace(INFO, labels={"estimator": estimator})
    export(blocks(forest(3)), tmp_path / "out", CONFIG, info)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "No value moves" in " ".join(card.split())
    assert "moved by a controlled" not in card


def test_tables_are_tables(written):
    card, _ = written
    for block in re.findall(r"(?:^\|.*\n)+", card, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


def test_parts_that_are_not_given_are_left_out(tmp_path):
    export(blocks(forest(3)), tmp_path / "out", CONFIG, CardInfo())
    card = (tmp_path / "out" / "README.md").read_text()
    assert "## Compression" not in card
    assert "Make it again" not in card


@given(st.text())
def test_any_text_is_a_yaml_string(text):
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert yaml.safe_load(f"key: {yaml_string(text)}") == {"key": text}


@given(st.text(alphabet=st.sampled_from("ab\n\r\t\u2028\x85|<>&`*_[]()#\\~$!\0\u202e"), max_size=50))
def test_escaped_text_stays_in_its_cell(text):
    cell = escape(text)
    assert len(cell.splitlines()) <= 1
    assert "<" not in cell
    assert not re.search(r"(?<!\\)(?:\\\\)*[|`*_\[\]]", cell)
    assert "\u202e" not in cell


def test_long_text_is_cut():
    assert len(escape("x" * 10**6)) == 300


@pytest.mark.parametrize(
    ("rows", "category"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (99_999, "10K<n<100K"), (10**9, "1B<n<10B"), (10**13, "n>1T")],
)
def test_size_categories(rows, category):
    assert _size_category(rows) == category
