import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace
from support.forest import block_of, blocks, export_tree, forest
from support.rows import compressed_tree

from treeforge.config import ExportConfig
from treeforge.errors import ConfigError, DataError, StorageError
from treeforge.export import CardInfo, export, shards, split_of
from treeforge.tree import TREE_FIELDS, Tree

CONFIG = ExportConfig(formats=("nodes", "hrm"), rows_per_shard=100, validation_share=0.2, test_share=0.2)
CARD = CardInfo(title="A test")


def files(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def read(out, format):
    folder = out / format if (out / format).exists() else out / "data"
    return {
        split: pl.read_parquet(folder / f"{split}-*.parquet")
        for split in ("train", "validation", "test")
        if list(folder.glob(f"{split}-*"))
    }


def test_files_are_named_and_counted(tmp_path):
    report = export(blocks(forest(40)), tmp_path / "out", CONFIG, CARD)
    names = [name.split("/") for name in files(tmp_path / "out")]
    assert {name[0] for name in names} == {"README.md", "data", "hrm", "plots"}
    assert ["data", "train-00000-of-00004.parquet"] in names
    nodes, hrm = report.formats
    assert (nodes.name, nodes.folder, hrm.name, hrm.folder) == ("nodes", "data", "hrm", "hrm")
    assert nodes.rows == 40 * 12
    assert report.problems == {split: counts.problems for split, counts in nodes.splits.items()}
    assert sum(report.problems.values()) == 40
    for format in report.formats:
        frames = read(tmp_path / "out", format.name)
        assert list(frames) == list(format.splits)
        for split, frame in frames.items():
            counts = format.splits[split]
            assert frame.height == counts.rows
            assert frame["problem_id"].n_unique() == counts.problems
            assert int(frame["hard"].sum()) == counts.positive
            assert int((~frame["hard"]).sum()) == counts.negative
            assert len(list((tmp_path / "out" / format.folder).glob(f"{split}-*"))) == counts.shards


def test_pairs_in_the_report_are_the_pairs_in_the_rows(tmp_path):
    report = export(blocks(forest(30)), tmp_path / "out", CONFIG, CARD)
    nodes = pl.concat(read(tmp_path / "out", "nodes").values()).select("tree_id", "node_id", "parent_id", "hard")
    hrm = pl.concat(read(tmp_path / "out", "hrm").values()).filter(span=2).select("tree_id", "node_id", "hard")
    first = hrm.join(nodes.drop("hard"), on=["tree_id", "node_id"]).join(
        nodes.select("tree_id", parent_id="node_id", first="hard"), on=["tree_id", "parent_id"]
    )
    signs = {True: "+", False: "-"}
    expected = {
        signs[a] + signs[b]: count
        for a, b, count in first.drop_nulls("first").group_by("first", "hard").len().iter_rows()
    }
    splits = report.formats[1].splits.values()
    assert {kind: sum(s.pairs[kind] for s in splits) for kind in ("++", "+-", "-+", "--")} == expected


def test_no_problem_is_in_two_splits_and_more_problems_move_nobody(tmp_path):
    export(blocks(forest(30)), tmp_path / "few", CONFIG, CARD)
    export(blocks(forest(60)), tmp_path / "many", CONFIG, CARD)
    few, many = (
        {split: set(frame["problem_id"]) for split, frame in read(tmp_path / name, "hrm").items()}
        for name in ("few", "many")
    )
    assert sum(map(len, many.values())) == len(set().union(*many.values())) == 60
    for split, ids in few.items():
        assert ids <= many[split]


def test_the_same_trees_give_the_same_bytes(tmp_path):
    export(blocks(forest(40)), tmp_path / "one", CONFIG, CARD)
    export(blocks(forest(40)), tmp_path / "elsewhere" / "two", CONFIG, CARD)
    assert files(tmp_path / "one") == files(tmp_path / "elsewhere" / "two")


def test_bytes_do_not_depend_on_how_many_trees_are_worked_on_at_once(tmp_path, monkeypatch):
    names = ("hrm", "nodes", "prm", "orm")
    config = ExportConfig(formats=names, validation_share=0.3, dedupe="exact", balance=True, max_interval=0.19)
    compressed = replace(compressed_tree(), number=40)
    trees = [*forest(40), compressed, *(export_tree(number, size=50) for number in range(41, 50))]
    export([block_of(*trees)], tmp_path / "one", config, CARD)
    monkeypatch.setattr("treeforge.export.blocks.PIECE_NODES", 30)
    monkeypatch.setattr("treeforge.export.formats.stack.PIECE_BYTES", 300)
    pieces = [*block_of(*trees).pieces()]
    assert 10 < len(pieces) < 50
    export(pieces, tmp_path / "two", config, CARD)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_another_export_to_the_same_place_replaces_the_first(tmp_path):
    export(blocks(forest(40)), tmp_path / "out", CONFIG, CARD)
    small = replace(CONFIG, formats=("hrm",), rows_per_shard=100_000, validation_share=0, test_share=0)
    export(blocks(forest(3)), tmp_path / "out", small, CARD)
    found = [name for name in files(tmp_path / "out") if not name.startswith("plots/")]
    assert found == ["README.md", "data/train-00000-of-00001.parquet"]
    assert "span" in pl.read_parquet_schema(tmp_path / "out" / "data" / "train-00000-of-00001.parquet")


@pytest.mark.slow
def test_memory_holds_one_block_at_a_time(tmp_path):
    refs, most = [], 0

    def some():
        nonlocal most
        for number in range(60):
            block = block_of(export_tree(number, size=500))
            refs.append(weakref.ref(block))
            yield block
            del block
            most = max(most, sum(ref() is not None for ref in refs))

    export(some(), tmp_path / "out", ExportConfig(), CARD)
    assert most == 1


def test_no_trees(tmp_path):
    with pytest.raises(DataError, match="no finished tree to export"):
        export([], tmp_path / "out", CONFIG, CARD)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path):
    def never():
        raise AssertionError
        yield

    with pytest.raises(ConfigError, match="there is no format 'jsonl'; there are hrm, kto, math-shepherd, nodes, "):
        export(never(), tmp_path / "out", ExportConfig(formats=("nodes", "jsonl")), CARD)


def bad_tree():
    tree = export_tree(99)
    columns = {name: getattr(tree.record.tree, name) for name in TREE_FIELDS}
    columns["text"] = ("", "\ud800", *columns["text"][2:])
    return replace(tree, record=replace(tree.record, tree=Tree(**columns)))


@pytest.mark.parametrize("where", [0, 40])
def test_a_bad_text_leaves_the_old_export_whole(tmp_path, where):
    export(blocks(forest(5)), tmp_path / "out", CONFIG, CARD)
    before = files(tmp_path / "out")
    trees = forest(40)
    trees.insert(where, bad_tree())
    with pytest.raises(DataError, match="lone surrogate"):
        export(blocks(trees), tmp_path / "out", CONFIG, CARD)
    assert files(tmp_path / "out") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_disk_that_fills_up_leaves_the_old_export_whole(tmp_path, monkeypatch):
    export(blocks(forest(5)), tmp_path / "out", CONFIG, CARD)
    before = files(tmp_path / "out")

    def full(stream, schema):
        class Full:
            is_open = True

            def write_table(self, table, row_group_size):
                raise OSError(28, "No space left on device")

        return Full()

    monkeypatch.setattr(shards, "_open_writer", full)
    with pytest.raises(StorageError, match=r"out cannot be written: No space left on device\. The disk is full"):
        export(blocks(forest(40)), tmp_path / "out", CONFIG, CARD)
    assert files(tmp_path / "out") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_the_parquet_writer_passes_a_full_disk_on(tmp_path, monkeypatch):
    real = shards._open_writer
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(shards, "_open_writer", lambda stream, schema: real(full, schema))
        with pytest.raises(StorageError, match="The disk is full"):
            export(blocks(forest(40)), tmp_path / "out", CONFIG, CARD)
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import sys
from pathlib import Path
from support.forest import blocks, forest
from treeforge.config import ExportConfig
from treeforge.export import CardInfo, export
print("go", flush=True)
config = ExportConfig(formats=("nodes", "hrm"), rows_per_shard=200, validation_share=0.2, test_share=0.2)
while True:
    export(blocks(forest(60)), Path(sys.argv[1]), config, CardInfo())
"""


@pytest.mark.slow
def test_kills_at_random_moments_leave_a_whole_export(tmp_path):
    out = tmp_path / "out"
    config = replace(CONFIG, rows_per_shard=200)
    export(blocks(forest(60)), out, config, CardInfo())
    whole = files(out)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for delay in (0.0, 0.05, 0.11, 0.17, 0.23, 0.31):
        with subprocess.Popen([sys.executable, "-c", SCRIPT, out], env=environment, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        assert files(out) == whole
    export(blocks(forest(60)), out, config, CardInfo())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_format_without_rows_is_left_out_of_the_yaml(tmp_path):
    unlabelled = [replace(tree, hard=tree.hard * 0 - 1, soft=tree.soft * float("nan")) for tree in forest(3)]
    report = export(blocks(unlabelled), tmp_path / "out", CONFIG, CARD)
    assert report.formats[1].splits == {}
    depths = [depth for tree in unlabelled for depth in tree.record.tree.depth]
    singles, pairs = (sum(depth >= span for depth in depths) for span in (1, 2))
    assert report.formats[1].left_out == {"step without a label": singles + pairs}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "config_name: nodes" in card
    assert "config_name: hrm" not in card
    assert not (tmp_path / "out" / "hrm").exists()


def test_splits_are_those_of_split_of(tmp_path):
    trees = forest(40)
    export(blocks(trees), tmp_path / "out", CONFIG, CARD)
    for split, frame in read(tmp_path / "out", "nodes").items():
        assert {split_of(problem, CONFIG) for problem in frame["problem_id"]} == {split}
