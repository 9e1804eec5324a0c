"""Files that are broken, of another format, hostile or huge: an error with its place, and nothing left behind."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.authors import Node

from treeforge.cli import invoke
from treeforge.errors import ConfigError, DataError, RunError
from treeforge.export.readers.safe_pickle import MAX_BYTES, load_node
from treeforge.importing import import_file

PRM = {"prompt": "Q?", "completions": ["a", "b"], "labels": [True, False]}


def fails(tmp_path: Path, file: Path, format: str, **options: Any) -> DataError:
    """The error of an import that leaves nothing behind."""
    with pytest.raises(DataError) as error:
        import_file(file, format, tmp_path / "run", **options)
    assert [path for path in tmp_path.iterdir() if "run" in path.name] == []
    return error.value


def jsonl(tmp_path: Path, *rows: Any) -> Path:
    file = tmp_path / "file.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def prm800k(**changes: Any) -> dict[str, Any]:
    step = {
        "completions": [{"text": "a", "rating": 1, "flagged": False}],
        "human_completion": None,
        "chosen_completion": 0,
    }
    row = {
        "question": {"problem": "Q?", "ground_truth_answer": "1"},
        "label": {"steps": [dict(step), dict(step)], "finish_reason": "solution"},
    }
    row["label"]["steps"][1] |= changes  # type: ignore[index]
    return row


def test_a_truncated_file(tmp_path: Path) -> None:
    error = fails(tmp_path, jsonl(tmp_path, PRM, json.dumps(PRM)[:30]), "prm")
    assert error.line == 2
    assert "file.jsonl:2" in str(error)
    assert "--skip-bad-rows" in str(error)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"question": {"problem": "Q?"}}, "label"),
        ({"label": {"steps": [], "finish_reason": "solution"}}, "question"),
        ({"question": "Q?", "label": {"steps": [], "finish_reason": "solution"}}, "question"),
        (prm800k(chosen_completion=3), "label.steps[1].chosen_completion"),
        (prm800k(chosen_completion=True), "label.steps[1].chosen_completion"),
        (prm800k(completions=[{"rating": 1}]), "label.steps[1].completions[0].text"),
        (prm800k(completions=[{"text": "a"}]), "label.steps[1].completions[0].rating"),
        (prm800k(completions=[{"text": "a", "rating": 2}]), "label.steps[1].completions[0].rating"),
        (prm800k(completions=[{"text": 7, "rating": 1}]), "label.steps[1].completions[0].text"),
        (prm800k(completions="a"), "label.steps[1].completions"),
        (prm800k(completions=[{"text": "a\u0000", "rating": 1}]), "label.steps[1].completions[0].text"),
    ],
)
def test_prm800k_rows_that_lack_something(tmp_path: Path, row: Any, field: str) -> None:
    error = fails(tmp_path, jsonl(tmp_path, prm800k(), row), "prm800k")
    assert (error.line, error.field) == (2, field)


@pytest.mark.parametrize(
    ("format", "row", "field"),
    [
        ("prm", {"prompt": "Q?", "completions": ["a"], "labels": [True, False]}, "labels"),
        ("prm", {"prompt": "Q?", "completions": ["a"], "labels": [1.5]}, "labels[0]"),
        ("prm", {"prompt": " ", "completions": ["a"], "labels": [1]}, "prompt"),
        ("prm", {"question": "Q?"}, "completions"),
        ("math-shepherd", {"input": "Q Step 1: a ки", "label": "Q Step 1: b +"}, "label"),
        ("math-shepherd", {"input": "Q Step 1: a ки", "label": "Q Step 1: a"}, "label"),
        ("math-shepherd", {"input": "Step 1: a", "label": "Step 1: a"}, "input"),
        ("math-shepherd", {"input": "a ки", "label": "a +"}, "input"),
        ("math-shepherd", {"input": "Q? R? a ки", "label": "Q? R? a +"}, "input"),
        ("math-shepherd", {"input": "Q? ки", "label": "Q? +"}, "input"),
        ("math-shepherd", {"input": "Q? Step 1: a ки"}, "label"),
        ("math-shepherd", {"input": "Q? Step 1: a ки", "value": ["+", "-"]}, "value"),
        ("math-shepherd", {"input": "Q? Step 1: a ки", "value": ["good"]}, "value[0]"),
        ("prm", {"prompt": "Q?", "completions": ["a"], "labels": [1], "answer": {"value": 4}}, "answer"),
        ("processbench", {"problem": "Q?", "steps": ["a", " "], "label": 1}, "label"),
        ("processbench", {"problem": "Q?", "steps": ["a"], "label": 0.5}, "label"),
        ("openr", {"question": "Q?", "process": "a ки\nb ки", "label": ["+"]}, "label"),
        ("openr", {"q": "Q?", "states": [{"state": "a"}]}, "states[0].mcs"),
        ("rest-mcts", {"prompt_answer": "Q? a", "label": 1}, "prompt_answer"),
        ("rest-mcts", {"content": "Q?", "summary": "a", "label": 1}, "label"),
        ("processbench", {"problem": "Q?", "steps": ["a"], "label": 1}, "label"),
        ("processbench", {"problem": "Q?", "steps": ["a"], "label": None}, "label"),
        (
            "processbench",
            {"problem": "Q?", "steps": ["a"], "label": 0, "final_answer_correct": 1},
            "final_answer_correct",
        ),
        ("openr", {"question": "Q?", "reasoning_steps": [{"solution_prefix": "R", "mc_value": 1}]}, None),
        ("openr", {"question": "Q?", "reasoning_steps": [{"solution_prefix": "Q?", "mc_value": 2}]}, None),
        ("openr", {"question": "Q?", "reasoning_steps": "Q?"}, "reasoning_steps"),
        ("rest-mcts", {"content": "Q?", "value_samples": [{"steps": "a"}]}, "value_samples[0].value"),
        ("rest-mcts", {"value_samples": []}, "content"),
    ],
)
def test_rows_of_another_shape(tmp_path: Path, format: str, row: Any, field: str | None) -> None:
    error = fails(tmp_path, jsonl(tmp_path, row), format)
    assert error.line == 1
    assert error.field is not None
    assert field is None or error.field == field


def test_bad_rows_can_be_left_out(tmp_path: Path) -> None:
    report = import_file(jsonl(tmp_path, PRM, "{", {}), "prm", tmp_path / "run", skip_bad_rows=True)
    assert (report.rows, report.skipped) == (1, 2)
    assert "file.jsonl:2" in report.first_skipped


def test_a_file_without_a_single_good_row(tmp_path: Path) -> None:
    assert "no row that can be used" in str(fails(tmp_path, jsonl(tmp_path, {}), "prm", skip_bad_rows=True))
    assert "no row that can be used" in str(fails(tmp_path, jsonl(tmp_path), "prm"))


def test_corrupt_and_foreign_parquet(tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.Table.from_pylist([PRM] * 2000), file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "no whole Parquet file" in str(fails(tmp_path, file, "prm"))
    file.write_bytes(b"PAR1 this is none PAR1")
    assert "no whole Parquet file" in str(fails(tmp_path, file, "prm"))
    pq.write_table(pa.table({"weight": [1.0]}), file)
    error = fails(tmp_path, file, "prm")
    assert (error.line, error.field) == (1, "completions")


@pytest.mark.parametrize(("name", "format"), [("f.jsonl", "prm800k"), ("f.parquet", "prm"), ("0.pkl", "hrm-pickle")])
def test_a_git_lfs_pointer(tmp_path: Path, name: str, format: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12240719\n"
    (tmp_path / name).write_text(pointer)
    assert "git lfs pull" in str(fails(tmp_path, tmp_path / name, format))


def test_no_such_file_or_format(tmp_path: Path) -> None:
    assert "no such file" in str(fails(tmp_path, tmp_path / "absent.jsonl", "prm"))
    with pytest.raises(ConfigError, match="prm800k, math-shepherd"):
        import_file(jsonl(tmp_path, PRM), "prn", tmp_path / "run")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="holds something"):
        import_file(jsonl(tmp_path, PRM), "prm", tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_what_a_killed_import_left_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / ".run.tmp"
    (left / "trees").mkdir(parents=True)
    (left / "manifest.json").write_text("{}")
    (left / "rows.sqlite").write_bytes(b"torn")
    assert import_file(jsonl(tmp_path, PRM), "prm", tmp_path / "run").rows == 1
    assert not left.exists()


def test_a_path_that_is_too_deep(tmp_path: Path) -> None:
    row = {"prompt": "Q?", "completions": ["a"] * 10_001, "labels": [1] * 10_001}
    assert "more than 10000 steps" in str(fails(tmp_path, jsonl(tmp_path, row), "prm"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "row"),
    [
        ("math-shepherd", {"input": "Q? Step 1: a" + " ки" * 300_000, "label": "Q? Step 1: a +" + " +" * 299_999}),
        (
            "math-shepherd",
            {"input": "Q" + " ки" * 300_000 + "Step 1: a ки", "value": [1] * 300_001},
        ),
        ("rest-mcts", {"prompt_answer": "Problem:Q" + "\n" * 900_000 + "Solution: a", "label": 1}),
        ("openr", {"question": "Q?", "process": "a" + "\n" * 900_000, "label": ["+"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_long_rows_are_read_in_time_linear_in_them(tmp_path: Path, format: str, row: Any) -> None:
    """Each would take hours in quadratic time."""
    report = import_file(jsonl(tmp_path, row), format, tmp_path / "run")
    assert (report.rows, report.steps, report.positive) == (1, 1, 1)


def test_json_that_is_nested_without_end(tmp_path: Path) -> None:
    deep = '{"text": "a", "mc_value": 1, "children": [' * 200_000
    file = jsonl(tmp_path, '{"question": "Q?", "reasoning_steps": ' + deep)
    assert fails(tmp_path, file, "openr").line == 1


class Shell:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/treeforge-was-here",)


class Evaluated:
    def __reduce__(self) -> Any:
        return builtins.eval, ("1 + 1",)


class ByState:
    def __reduce__(self) -> Any:
        return builtins.getattr, (Node, "grow")


def hand_written(text: bytes) -> bytes:
    return b"\x80\x04" + text + b"."


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Shell()),
        pickle.dumps(Shell(), 0),
        pickle.dumps(Evaluated()),
        pickle.dumps(ByState()),
        pickle.dumps([Node(), os.system]),
        hand_written(b"cposix\nsystem\n(S'true'\ntR"),
        hand_written(b"(S'true'\niposix\nsystem\n"),
        hand_written(b"(cposix\nsystem\nS'true'\no"),
        hand_written(b"\x8c\x05posix\x8c\x06system\x93)\x81"),
        hand_written(b"Pname\n"),
        hand_written(b"\x82\x01"),
        hand_written(b"]r\xff\xff\xff\x7f"),
        hand_written(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f"),
        b"",
        b"no pickle",
        pickle.dumps(Node())[:-20],
        pickle.dumps({"children": []}),
        pickle.dumps(3),
    ],
    ids=lambda content: repr(content[:24]),
)
def test_pickles_that_are_no_nodes_are_refused(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(os, "system", ran.append)
    file = tmp_path / "0.pkl"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"0\.pkl"):
        load_node(file)
    assert not ran
    assert not Path("/tmp/treeforge-was-here").exists()


def test_a_pickle_that_is_too_large(tmp_path: Path) -> None:
    file = tmp_path / "0.pkl"
    with file.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(DataError, match="larger than 128 MiB"):
        load_node(file)


def test_trees_of_nodes_that_are_no_trees(tmp_path: Path) -> None:
    def error(root: Node) -> str:
        (tmp_path / "0.pkl").write_bytes(pickle.dumps(root))
        return str(fails(tmp_path, tmp_path / "0.pkl", "hrm-pickle"))

    looped = Node(question="Q?")
    looped.grow("a").children.append(looped)
    assert "two places" in error(looped)
    shared = Node(question="Q?")
    shared.grow("a").children.append(shared.grow("b"))
    assert "two places" in error(shared)
    empty = Node(question="Q?")
    empty.grow("a").previous_answer = []
    assert "without its own step" in error(empty)
    strange = Node(question="Q?")
    strange.children = [7]  # type: ignore[list-item]
    assert "a node is expected" in error(strange)
    lacking = Node(question="Q?")
    del lacking.grow("a").contain_answer
    assert "contain_answer" in error(lacking)


def deep_pickle(depth: int) -> bytes:
    """A chain of nodes, written from the last one up, so that nothing is nested but the nodes themselves."""
    parts = [b"\x80\x04"]
    for number in range(depth + 1):
        parts.append(b"ctree\nNode\n)\x81}(\x8c\x08children]")
        if number:
            parts.append(b"j" + (number - 1).to_bytes(4, "little") + b"a")
        parts.append(b"\x8c\x0fprevious_answer]\x8c\x01aa\x8c\x08question\x8c\x01Qub")
        parts.append(b"r" + number.to_bytes(4, "little") + b"0")
    return b"".join(parts) + b"j" + depth.to_bytes(4, "little") + b"."


def test_a_deep_pickled_tree_is_an_error_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "0.pkl").write_bytes(deep_pickle(40_000))
    error = fails(tmp_path, tmp_path / "0.pkl", "hrm-pickle")
    assert error.field == "node 39999, children[0].should_stop"  # read down to its leaf, which lacks a field


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    file = jsonl(tmp_path, *[PRM | {"prompt": f"Q{n}? {'x' * 2000}"} for n in range(500)])
    program = (
        "import resource, signal, sys; from treeforge.cli import invoke;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000));"
        f"sys.exit(invoke(['import', {str(file)!r}, '--format', 'prm', '--out', {str(tmp_path / 'run')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file.jsonl"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """300 MB of rows after 60 MB of the same: what the larger file needs beyond that is a small part of it."""
    row = json.dumps({"prompt": "Q NUMBER?", "completions": ["a" * 10_000] * 3, "labels": [1, 0, 1]})
    for name, count in (("small", 2000), ("large", 10_000)):
        with (tmp_path / f"{name}.jsonl").open("w") as stream:
            stream.writelines(row.replace("NUMBER", str(number)) + "\n" for number in range(count))
    program = (
        "import resource, sys; from treeforge.cli import invoke\n"
        "for name in ('small', 'large'):\n"
        f"    file, out = {str(tmp_path)!r} + '/' + name + '.jsonl', {str(tmp_path)!r} + '/' + name\n"
        "    assert invoke(['import', file, '--format', 'prm', '--out', out]) == 0\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    small, large = (int(line) * 1024 for line in done.stdout.splitlines() if line.isdecimal())
    assert large - small < (tmp_path / "large.jsonl").stat().st_size / 4


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = jsonl(tmp_path, {"prompt": "Q?"})
    assert invoke(["import", str(file), "--format", "prm", "--out", str(tmp_path / "run")]) == 2
    assert "file.jsonl:1: field 'completions': is missing" in capsys.readouterr().err
    assert invoke(["import", str(file), "--format", "prm800k", "--out", str(tmp_path / "run"), "--neutral", "no"]) == 2
    assert "skip" in capsys.readouterr().err
