"""A damaged or missing table: what `stats`, `show` and the page say, and that doing what they say helps."""

import re
import shlex

import pytest
from support.page import served_page
from support.runs import problems, scripted_config, table_bytes

from treeforge.cli import invoke
from treeforge.pipeline import run as run_pipeline


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    run_pipeline(problems(6), path, scripted_config(children=6))
    return path


def torn(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garbled(file):
    """A page in the middle; the footer and the first columns stay."""
    content = bytearray(file.read_bytes())
    at = content.find(b"Step")
    at = at if at >= 0 else len(content) // 2
    content[at - 40 : at + 40] = b"\xff" * 80
    file.write_bytes(content)


def removed(file):
    file.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [torn, garbled, removed])
@pytest.mark.parametrize("table", ["trees/nodes", "trees/rollouts", "labels/values", "compressed/nodes"])
def test_doing_what_the_message_says_gives_every_byte_back(run, capsys, table, damage):
    before = table_bytes(run)
    file = run / f"{table}-00001.parquet"
    damage(file)
    capsys.readouterr()
    said = ""
    for command in (["show", run, "5"], ["show", run, "5", "--diff"], ["stats", run]):
        invoke([str(part) for part in command])
        said = said or next(iter(re.findall(r"[^\n]*Delete it if it is there[^\n]*", capsys.readouterr().err)), "")
    if damage is removed and not table.startswith("trees"):
        assert said == ""  # Views that are gone are stale, and made again by themselves.
        command = f"treeforge compress {run}"
    else:
        assert str(file) in said.replace("\n", "")
        command = re.search(r"`(treeforge [^`]+)`", said)[1]
    file.unlink(missing_ok=True)
    assert invoke(shlex.split(command)[1:]) == 0
    invoke(["export", str(run)])
    assert table_bytes(run) == before
    assert invoke(["stats", str(run)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("table", ["trees/nodes", "labels/values", "compressed/nodes"])
@pytest.mark.parametrize("other", ["other trees", "other numbers", "fewer trees"])
def test_a_table_of_another_run_is_known_for_one(run, tmp_path, capsys, table, other):
    before = table_bytes(run)
    file = run / f"{table}-00001.parquet"
    if other == "other trees":
        run_pipeline(problems(6), tmp_path / "other", scripted_config(children=5, seed=1))
        content = (tmp_path / "other" / f"{table}-00001.parquet").read_bytes()
    elif other == "fewer trees":
        run_pipeline(problems(5), tmp_path / "other", scripted_config(children=6))
        content = (tmp_path / "other" / f"{table}-00001.parquet").read_bytes()
    else:
        content = (run / f"{table}-00000.parquet").read_bytes()
    file.write_bytes(content)
    capsys.readouterr()
    assert invoke(["export", str(run)]) == 4
    said = capsys.readouterr().err
    assert "is not of this run" in said
    for _ in range(2):  # Where labels do not fit trees, either may be the stranger.
        name, command = re.search(
            r"(\S+\.parquet) is not of this run.*`(treeforge [^`]+)`", said.replace("\n", " ")
        ).groups()
        (run.parent / name).unlink()
        assert invoke(shlex.split(command)[1:]) == 0
        if invoke(["export", str(run)]) == 0:
            break
        said = capsys.readouterr().err
    assert table_bytes(run) == before


def test_the_page_says_the_same(run):
    torn(run / "trees" / "nodes-00000.parquet")
    with served_page(run) as page:
        for path in ("problems/0", "problems"):
            status, message = page.error(path)
            assert status == 500
            assert f"treeforge resume {run}" in message
        assert page.json("problems/5")["tree"]["nodes"] > 1


def test_a_tree_of_an_imported_run_is_imported_again(tmp_path):
    from treeforge.store.parquet import how_to_remake

    assert "import the run again" in how_to_remake(tmp_path / "run" / "trees" / "values-00000.parquet")
    assert "same command" in how_to_remake(tmp_path / "given.parquet")
