"""`treeforge view` on the command line."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from support.folders import write_run
from support.hand_drawn import hand_drawn

from treeforge.cli import invoke
from treeforge.view.server import listen


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", [hand_drawn(), hand_drawn(), None])


@pytest.fixture
def view(capsys):
    def call(*arguments):
        code = invoke(["view", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_bundle(view, run, tmp_path):
    code, out, err = view(run, "--bundle", tmp_path / "page.html", "--limit", 1)
    assert code == 0
    assert out.startswith(f"{tmp_path / 'page.html'}: 1 trees, ")
    assert "1 more trees are not in it" in err
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_bundle_never_goes_over_the_runs_own_files(view, run):
    for file in (run / "manifest.json", run / "trees" / "nodes-00000.parquet"):
        before = file.read_bytes()
        code, _, err = view(run, "--bundle", file)
        assert (code, file.read_bytes()) == (2, before)
        assert f"--bundle: {file} is a file of the run" in err
    for _ in range(2):
        assert view(run, "--bundle", run / "page.html")[0] == 0


def test_a_port_in_use(view, run):
    with listen("127.0.0.1", 0) as taken:
        code, out, err = view(run, "--port", taken.getsockname()[1])
    assert (code, out) == (2, "")
    assert "Choose another with --port" in err


def test_a_folder_that_is_no_run(view, tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file"):
        code, _, err = view(path)
        assert code == 2
        assert f"{path} is no run folder" in err


def test_an_older_schema(view, run):
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"schema": 0}))
    code, _, err = view(run)
    assert code == 2
    assert "was written with schema 0" in err


def test_problems_are_chosen_for_bundles_only(view, run):
    code, _, err = view(run, "--problem", "sum-0")
    assert code == 2
    assert "--bundle" in err


def test_without_the_extra(view, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = view(run)
    assert code == 2
    assert "pip install 'treeforge[view]'" in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(run, number):
    command = [str(Path(sys.executable).parent / "treeforge"), "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().rsplit(" ", 1)[1].strip()
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address + "api/run", timeout=60) as reply:
            assert json.load(reply)["problems"] == 3
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err
