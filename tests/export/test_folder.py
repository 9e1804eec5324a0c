import os
import subprocess
import sys
from pathlib import Path

import pytest

from treeforge.errors import ConfigError, RunLockedError, StorageError
from treeforge.export import folder
from treeforge.export.folder import replaced_folder

KNOWN = frozenset({"README.md", "data"})
SHARD = "train-00000-of-00001.parquet"


def put(out, text):
    with replaced_folder(out, KNOWN) as new:
        (new / "data").mkdir()
        (new / "data" / SHARD).write_text(text)


def content(out):
    return (out / "data" / SHARD).read_text()


@pytest.fixture(params=["exchange", "two renames"])
def out(request, tmp_path, monkeypatch):
    if request.param == "two renames":
        monkeypatch.setattr(folder, "_exchange", lambda new, old: False)
    return tmp_path / "a" / "out"


def test_a_folder_is_made_and_replaced(out):
    put(out, "one")
    assert content(out) == "one"
    put(out, "two")
    assert content(out) == "two"
    assert os.listdir(out.parent) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, StorageError])
def test_a_failure_leaves_the_old_one_and_nothing_else(out, error):
    put(out, "one")

    def fail():
        with replaced_folder(out, KNOWN) as new:
            (new / "README.md").write_text("half")
            raise error("no")

    with pytest.raises(error):
        fail()
    assert content(out) == "one"
    assert os.listdir(out.parent) == ["out"]


def test_what_a_kill_left_is_cleared(out):
    left = out.with_name(".out.tmp")
    (left / "data").mkdir(parents=True)
    (left / "data" / "torn").write_text("torn")
    (left / "torn").write_text("torn")
    put(out, "one")
    assert os.listdir(out / "data") == [SHARD]
    assert os.listdir(out) == ["data"]
    assert os.listdir(out.parent) == ["out"]


def test_a_kill_between_the_two_renames_is_made_good(out):
    put(out, "one")
    out.rename(out.with_name(".out.old"))
    with pytest.raises(ValueError, match="no"), replaced_folder(out, KNOWN):
        raise ValueError("no")
    assert content(out) == "one"


def test_a_killed_export_leaves_the_old_one_whole(tmp_path):
    out = tmp_path / "out"
    put(out, "one")
    script = (
        "import os, sys, pathlib\n"
        "from treeforge.export.folder import replaced_folder\n"
        "with replaced_folder(pathlib.Path(sys.argv[1]), frozenset({'data'})) as new:\n"
        "    (new / 'data').mkdir()\n"
        "    (new / 'data' / 'train-00000-of-00001.parquet').write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", script, out], env=environment, check=False).returncode == -9
    assert content(out) == "one"
    put(out, "two")
    assert content(out) == "two"


def test_another_export_is_refused_and_does_no_harm(out):
    with replaced_folder(out, KNOWN) as new:
        (new / "data").mkdir()
        with pytest.raises(RunLockedError, match="another export"), replaced_folder(out, KNOWN):
            pass
        (new / "data" / SHARD).write_text("one")
    assert content(out) == "one"


def test_a_folder_with_other_files_is_not_replaced(out):
    out.mkdir(parents=True)
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"thesis\.tex"), replaced_folder(out, KNOWN):
        pass
    assert os.listdir(out) == ["thesis.tex"]
    assert os.listdir(out.parent) == ["out"]


def test_a_file_is_not_replaced(out):
    out.parent.mkdir()
    out.write_text("file")
    with pytest.raises(ConfigError, match="is not a folder"), replaced_folder(out, KNOWN):
        pass
    assert out.read_text() == "file"


def test_a_link_stays_a_link(out):
    real = out.with_name("real")
    put(real, "one")
    out.symlink_to(real)
    put(out, "two")
    assert out.is_symlink()
    assert content(real) == "two"


def test_an_error_of_the_disk_is_a_storage_error(out):
    says = r"out cannot be written: No space left on device\. The disk is full"
    with pytest.raises(StorageError, match=says), replaced_folder(out, KNOWN):
        raise OSError(28, "No space left on device")


def test_a_parent_that_is_a_file_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StorageError, match="file/out cannot be written"),
        replaced_folder(tmp_path / "file" / "out", KNOWN),
    ):
        pass


@pytest.mark.parametrize("name", ["data/mine.txt", "README.md", "data/deep/train-00000-of-00001.parquet"])
def test_what_a_user_put_there_is_never_replaced(tmp_path, name):
    mine = tmp_path / "out" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    with pytest.raises(ConfigError, match="no export wrote"), replaced_folder(tmp_path / "out", KNOWN):
        pass
    assert mine.read_text() == "precious"


def test_the_root_is_no_folder_for_an_export():
    with pytest.raises(ConfigError, match="cannot be replaced"), replaced_folder(Path("/"), KNOWN):
        pass
