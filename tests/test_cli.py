"""The command line end to end, in process, with the scripted policy and the real checker."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import problems, table_bytes

from treeforge.cli import invoke

ROOT = Path(__file__).parent.parent
FAST = ["--policy", "scripted", "--simulations", "6", "--quiet"]


@pytest.fixture
def treeforge(capsys):
    def call(*arguments):
        code = invoke([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def problem_file(tmp_path):
    file = tmp_path / "problems.jsonl"
    rows = [{"id": p.problem_id, "question": p.question, "answer": p.gold_answer} for p in problems(6)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_run_ends_with_lines_that_load_the_shards(treeforge, problem_file, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    code, out, _ = treeforge("run", problem_file, "--out", tmp_path / "run", *FAST)
    assert code == 0
    assert "6 done" in out
    lines = [line.strip() for line in out.splitlines() if line.startswith("  import")]
    assert [line.split()[1].rstrip(";,") for line in lines] == ["polars", "datasets", "glob"]
    space = {}
    for line in lines:
        exec(line, space)
    assert len(space["frame"]) == len(space["dataset"]) == len(space["table"]) > 100


def test_names_of_files_do_not_reach_the_terminal_raw(treeforge, tmp_path):
    hostile = tmp_path / "\x1b[2Jproblems\u202e.jsonl"
    code, out, err = treeforge("run", hostile, "--out", tmp_path / "run", *FAST)
    assert code == 2
    assert "␛[2Jproblems<U+202E>.jsonl" in err
    assert out == ""


def test_unreadable_golds_are_reported_with_their_line(treeforge, tmp_path, caplog):
    file = tmp_path / "odd.jsonl"
    file.write_text(
        '{"id": "a", "question": "?", "answer": "1"}\n\n{"id": "b", "question": "?", "answer": "\\\\frac{1}{"}\n'
    )
    assert treeforge("run", file, "--out", tmp_path / "run", *FAST)[0] == 0
    assert "odd.jsonl:3, problem b: gold answer" in caplog.text
    assert treeforge("run", problems_of(file, 1), "--out", tmp_path / "more", *FAST)[0] == 0
    caplog.clear()
    assert treeforge("extend", tmp_path / "more", "--problems", file, "--quiet")[0] == 0
    assert "odd.jsonl:3, problem b: gold answer" in caplog.text


def problems_of(file, count):
    """The first lines of a file as another one."""
    part = file.with_name("part.jsonl")
    part.write_text("\n".join(file.read_text().splitlines()[:count]) + "\n")
    return part


def test_stages_one_by_one_make_the_same_bytes_as_run(treeforge, problem_file, tmp_path):
    treeforge("run", problem_file, "--out", tmp_path / "run", *FAST)
    whole = table_bytes(tmp_path / "run")
    for stage in ("search", "label", "compress", "export"):
        code, out, _ = treeforge(stage, tmp_path / "run")
        assert code == 0, stage
        assert out
    assert table_bytes(tmp_path / "run") == whole


def test_views_follow_their_settings_without_the_model(treeforge, problem_file, tmp_path):
    run = tmp_path / "run"
    treeforge("run", problem_file, "--out", run, *FAST)
    strict = json.loads(treeforge("label", run, "--set", "threshold=0.9", "--json")[1])
    loose = json.loads(treeforge("label", run, "--set", "label.threshold=0.1", "--json")[1])
    assert strict["positive"] < loose["positive"]
    assert strict["nodes"] == loose["nodes"]
    report = json.loads(treeforge("compress", run, "--set", "probability=1.0", "--set", "min_children=2", "--json")[1])
    assert report["merges"] > 0
    code, out, _ = treeforge("export", run, "--out", tmp_path / "only", "--format", "nodes", "--json")
    assert code == 0
    assert list(json.loads(out)["rows"]) == ["nodes"]
    assert "threshold=0.1" in (tmp_path / "only" / "README.md").read_text()


def test_run_again_goes_on_and_another_recipe_is_refused(treeforge, problem_file, tmp_path):
    run = ("run", problem_file, "--out", tmp_path / "run", *FAST)
    assert treeforge(*run)[0] == 0
    code, out, _ = treeforge(*run, "--json")
    assert code == 0
    assert json.loads(out)["progress"]["requests"] == 0
    code, _, errors = treeforge(*run, "--seed", "5")
    assert code == 2
    assert "seed: the run has 0, this command has 5" in errors
    code, _, errors = treeforge("resume", tmp_path / "run", "--set", "search.wave=9")
    assert code == 2
    assert "search.wave" in errors
    assert treeforge("resume", tmp_path / "run", "--set", "machine.concurrency=3", "--quiet")[0] == 0


def test_the_same_command_says_what_it_takes_back(treeforge, problem_file, tmp_path, caplog):
    run = ("run", problem_file, "--out", tmp_path / "run", *FAST)
    assert treeforge(*run)[0] == 0
    caplog.clear()
    code, out, _ = treeforge("label", tmp_path / "run", "--set", "threshold=0.9")
    assert (code, f"Next: treeforge export {tmp_path / 'run'}" in out) == (0, True)
    assert treeforge(*run)[0] == 0
    assert "label.threshold: 0.9 stood, this command has 0.5; `treeforge resume` keeps what stood" in caplog.text
    caplog.clear()
    assert treeforge(*run)[0] == 0
    assert "stood" not in caplog.text


def test_a_run_that_is_older_than_a_setting_goes_on(treeforge, problem_file, tmp_path):
    run = ("run", problem_file, "--out", tmp_path / "run", *FAST)
    assert treeforge(*run)[0] == 0
    file = tmp_path / "run" / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["recipe"]["search"]["given"], manifest["recipe"]["search"]["omega"]
    file.write_text(json.dumps(manifest))
    assert treeforge(*run)[0] == 0
    assert treeforge("resume", tmp_path / "run", "--set", "machine.concurrency=3", "--quiet")[0] == 0
    code, _, errors = treeforge("resume", tmp_path / "run", "--set", "search.omega.alpha=0.3")
    assert code == 2
    assert "search.omega.alpha: the run has 0.5, this command has 0.3" in errors


def test_extend_adds_problems_and_budget(treeforge, problem_file, tmp_path):
    run = tmp_path / "run"
    treeforge("run", problem_file, "--out", run, "--limit", "3", *FAST)
    code, out, _ = treeforge(
        "extend", run, "--problems", problem_file, "--budget", "simulations=9", "--quiet", "--json"
    )
    assert code == 0
    result = json.loads(out)
    assert result["statuses"] == {"done": 6}
    assert result["progress"]["replayed"] == 18
    assert treeforge("extend", run, "--budget", "simulations=2")[0] == 2
    assert treeforge("extend", run)[0] == 2


def test_export_while_the_run_goes_on(treeforge, problem_file, tmp_path):
    from treeforge.store.run import RunFolder

    run = tmp_path / "run"
    treeforge("run", problem_file, "--out", run, *FAST, "--set", "block=2")
    whole = json.loads(treeforge("export", run, "--json")[1])["rows"]["nodes"]
    folder = RunFolder.open(run)
    folder.lock()
    folder.reopen([1, 4])
    code, out, _ = treeforge("export", run, "--json", "--out", tmp_path / "part")
    folder.close()
    assert code == 0
    assert sum(json.loads(out)["rows"]["nodes"].values()) < sum(whole.values())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "absent.jsonl", "--out", "x"], 2, "absent.jsonl"),
        (["run", "PROBLEMS", "--out", "RUN", "--policy", "oracle"], 2, "policy.backend"),
        (["run", "PROBLEMS", "--out", "RUN", "--policy", "scripted", "--set", "search.wave=0"], 2, "search"),
        (["run", "PROBLEMS", "--out", "RUN", "--policy", "scripted", "--preset", "nope"], 2, "presets are"),
        (["run", "PROBLEMS", "--out", "RUN", "--policy", "local", "--model", "/nowhere/model.gguf"], 2, "model"),
        (["run", "PROBLEMS", "--out", "RUN", "--policy", "server"], 2, "--server"),
        (["resume", "RUN"], 2, "no run folder"),
        (["label", "RUN"], 2, "no run folder"),
        (["stats", "RUN"], 2, "no run folder"),
        (["show", "RUN"], 2, "no run folder"),
        (["run"], 2, "PROBLEMS"),
        (["grow"], 2, "No such command"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_2(treeforge, problem_file, tmp_path, arguments, code, message):
    names = {"PROBLEMS": problem_file, "RUN": tmp_path / "run"}
    found, _, errors = treeforge(*(names.get(a, a) for a in arguments))
    assert found == code
    assert message in errors
    assert "Traceback" not in errors


def test_an_unreachable_server_is_exit_3_and_the_run_can_be_resumed(treeforge, problem_file, tmp_path):
    code, _, errors = treeforge(
        "run", problem_file, "--out", tmp_path / "run", "--server", "http://127.0.0.1:9/v1", "--model", "m", "--quiet"
    )  # fmt: skip
    assert code == 3
    assert "127.0.0.1:9" in errors


def test_a_second_run_on_one_folder_is_refused(treeforge, problem_file, tmp_path):
    from treeforge.store.run import RunFolder

    run = ("run", problem_file, "--out", tmp_path / "run", *FAST)
    treeforge(*run)
    with RunFolder.open(tmp_path / "run") as other:
        other.lock()
        code, _, errors = treeforge(*run)
    assert code == 2
    assert "in use" in errors


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, remounted at will; only where the tests may mount (root in a container)."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(options):
        return subprocess.run(["mount", *options, str(disk)], capture_output=True, check=False).returncode

    if os.geteuid() or mount(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]):
        pytest.skip("needs the right to mount a small tmpfs")
    yield disk, lambda options: mount(["-o", f"remount,{options}"])
    subprocess.run(["umount", str(disk)], check=True)


def run_command(problem_file, out, *options):
    command = [sys.executable, "-m", "treeforge", "run", str(problem_file), "--out", str(out), *FAST, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_read_only_folder_is_exit_4(problem_file, small_disk):
    disk, remount = small_disk
    remount("ro")
    done = run_command(problem_file, disk / "run")
    assert done.returncode == 4, done.stderr
    assert "read-only" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_full_disk_is_exit_4_and_the_run_goes_on_when_there_is_room(problem_file, small_disk):
    disk, remount = small_disk
    options = ["--simulations", "900", "--set", "search.expansions=50", "--json"]
    done = run_command(problem_file, disk / "run", *options)
    assert done.returncode == 4, done.stderr
    assert "full" in done.stderr
    assert "Traceback" not in done.stderr
    remount("size=40m")
    again = run_command(problem_file, disk / "run", *options)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["progress"]["replayed"] > 0


def test_version_and_help(treeforge):
    assert treeforge("--version")[1].startswith("treeforge ")
    assert "resume" in treeforge("--help")[1]


@pytest.mark.slow
def test_the_command_reference_is_current():
    make = runpy.run_path(str(ROOT / "scripts" / "make_command_reference.py"))["reference"]
    assert (ROOT / "docs" / "commands.md").read_text() == make(), "run `make docs`"


def test_importing_treeforge_loads_nothing_heavy():
    heavy = (
        "torch",
        "vllm",
        "ray",
        "sympy",
        "transformers",
        "pyarrow",
        "polars",
        "numpy",
        "xllamacpp",
        "aiohttp",
        "datasets",
    )
    code = f"import sys, treeforge, treeforge.cli.app; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
