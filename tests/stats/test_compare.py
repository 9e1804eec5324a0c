"""Runs side by side: what is marked, in every shape, and what is refused."""

import csv
import io
import json
import shutil

import pytest
from support.folders import ended, write_run
from support.runs import EqualStringJudge, problems, scripted_config

from treeforge.cli import invoke
from treeforge.importing import import_file
from treeforge.pipeline import run as run_pipeline
from treeforge.stats import summarise
from treeforge.stats.compare import compare, run_names
from treeforge.stats.groups import groups
from treeforge.store.run import RunFolder
from treeforge.tree import TreeBuilder

ORIGIN = ("policy.backend", "search.strategy")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two runs of the same problems; the second has more simulations."""
    folder = tmp_path_factory.mktemp("pair")
    for name, simulations in (("small", 4), ("large", 8)):
        config = scripted_config(budget={"simulations": simulations})
        run_pipeline(problems(4), folder / name, config, judge=EqualStringJudge())
    return folder / "small", folder / "large"


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = invoke(["stats", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def compared(*paths):
    runs = [RunFolder.open(path) for path in paths]
    return compare(run_names(paths), [summarise(run) for run in runs], runs)


def test_figures_of_every_run_and_what_differs(pair):
    found = compared(*pair)
    assert found.runs == ("small", "large")
    figures = {figure.key: figure for figure in found.figures}
    assert figures["outcomes.completions"].values == (4 * 4 * 4, 4 * 8 * 4)
    assert figures["outcomes.completions"].differs
    assert figures["problems.total"].values == (4, 4)
    assert not figures["problems.total"].differs
    # A figure that only one run has still has its place.
    assert figures["outcomes.pass_at.32"].values[0] is None
    assert {setting.key: setting.values for setting in found.settings} == {"budget.simulations": ("4", "8")}


@pytest.fixture
def imported(tmp_path):
    """A run of trees that somebody else grew."""
    row = {"prompt": "What is 1 + 1?", "completions": ["It is 2.", "So 2."], "labels": [True, False]}
    (tmp_path / "rated.jsonl").write_text(json.dumps(row) + "\n")
    import_file(tmp_path / "rated.jsonl", "prm", tmp_path / "imported")
    return tmp_path / "imported"


def test_an_imported_run_has_the_settings_of_no_search(pair, imported):
    found = {setting.key: setting.values for setting in compared(imported, *pair).settings}
    assert found["policy.backend"] == ('"imported from prm"', '"scripted"', '"scripted"')
    assert found["search.strategy"] == ('"imported"', '"mcts"', '"mcts"')
    assert found["budget.simulations"] == ("", "4", "8")
    assert not [key for key in found if key.startswith(("policy.", "search.", "sampling.")) and key not in ORIGIN]
    assert found["steps.preset"][0] == '"custom"'
    assert summarise(RunFolder.open(imported)).strategy == "imported"
    several = [("a", RunFolder.open(imported)), ("b", RunFolder.open(pair[0]))]
    assert [group.group for group in groups(several, "strategy")] == ["imported", "mcts"]


def test_imported_runs_beside_one_another_do_not_differ_in_what_they_do_not_have(imported, tmp_path):
    shutil.copytree(imported, tmp_path / "copy")
    assert compared(imported, tmp_path / "copy").settings == ()


def test_a_run_beside_its_copy_does_not_differ(pair, tmp_path):
    shutil.copytree(pair[0], tmp_path / "copy")
    found = compared(pair[0], tmp_path / "copy")
    assert [figure.key for figure in found.figures if figure.differs] == []
    assert found.settings == ()


def test_the_table(pair, call):
    code, out, err = call(*pair)
    assert code == 0
    marked = [line for line in out.splitlines() if "≠" in line]
    assert any("completions" in line and "(+100%)" in line for line in marked)
    assert any("budget.simulations" in line for line in marked)
    assert not any(line.split()[:2] == ["≠", "problems"] for line in marked)
    assert "\x1b" not in out
    assert all("hardly any completions" in line for line in err.splitlines()), err


def test_json_and_csv(pair, call):
    _, out, _ = call(*pair, "--json")
    data = json.loads(out)
    assert list(data["runs"]) == ["small", "large"]
    assert data["runs"]["large"]["outcomes"]["completions"] == 128
    assert data["comparison"]["settings"][0]["key"] == "budget.simulations"
    _, out, _ = call(*pair, "--csv")
    rows = {row["key"]: row for row in csv.DictReader(io.StringIO(out))}
    assert (rows["outcomes.completions"]["large"], rows["outcomes.completions"]["differs"]) == ("128", "1")
    assert rows["outcomes.pass_at.32"]["small"] == ""
    _, out, _ = call(pair[0], "--csv")
    assert next(csv.reader(io.StringIO(out))) == ["section", "key", "name", "differs", "small"]


def test_names_tell_runs_apart(pair, tmp_path):
    other = write_run(tmp_path / "small", [None])
    assert run_names([pair[0], other]) == (str(pair[0]), str(other))
    hostile = tmp_path / "\x1b[2J"
    assert "\x1b" not in run_names([hostile])[0]


def test_what_is_refused(pair, tmp_path, call):
    small = pair[0]
    for arguments, complaint in (
        ([small, small.parent / "large" / ".." / "small"], "given twice"),
        ([small, "--json", "--csv"], "--json and --csv"),
        ([small, "--by", "depth", "--html", tmp_path / "x.html"], "--by"),
        ([small, "--gpu-hours", 3], "--gpu-hours needs --gpu-price"),
        ([small, "--gpu-price", 3, "--price-per-million", 1], "either --price-per-million or --gpu-price"),
        ([small, tmp_path / "absent"], "is no run folder"),
        ([tmp_path], "is no run folder"),
        ([small, "--by", "colour"], "colour"),
        ([], "RUN"),
    ):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert complaint in err


def test_older_and_damaged_folders_say_what_they_are(pair, tmp_path, call):
    old, broken = tmp_path / "old", tmp_path / "broken"
    shutil.copytree(pair[0], old)
    manifest = json.loads((old / "manifest.json").read_text())
    (old / "manifest.json").write_text(json.dumps(manifest | {"schema": 0}))
    code, _, err = call(old)
    assert code == 2
    assert "was written with schema 0" in err
    shutil.copytree(pair[0], broken)
    (broken / "manifest.json").write_text('{"schema": 1, "rec')
    code, _, err = call(broken, pair[1])
    assert code == 4
    assert "cannot be read" in err
    shutil.rmtree(broken)
    shutil.copytree(pair[0], broken)
    table = next(broken.glob("labels/values-*.parquet"))
    table.write_bytes(table.read_bytes()[:100])
    code, _, err = call(broken)
    assert code == 4
    assert table.name in err


def test_a_name_that_one_run_does_not_have_counts_as_none(pair, tmp_path):
    empty = write_run(tmp_path / "empty", [None, None])
    figures = {figure.key: figure.values for figure in compared(pair[0], empty).figures}
    assert figures["problems.by_status.open"] == (0, 2)
    assert figures["problems.by_status.done"] == (4, 0)
    # Without labels there is no count of pairs.
    assert {values[1] for key, values in figures.items() if key.startswith("labels.")} == {None}


def test_a_run_without_trees_beside_one_with(pair, tmp_path, call):
    empty = write_run(tmp_path / "empty", [None, None])
    code, out, _ = call(empty, pair[0])
    assert code == 0
    assert "+" not in next(line for line in out.splitlines() if line.split()[1:3] == ["nodes", "a"])
    assert call(empty, "--by", "depth")[0] == 0


def test_prices(pair):
    from treeforge.stats.cost import Prices

    run = RunFolder.open(pair[1])
    cost = summarise(run, Prices(per_million=3.0)).cost
    assert cost.price == pytest.approx(3e-6 * cost.tokens)
    assert cost.price_per_correct == pytest.approx(cost.price / summarise(run).outcomes.correct)
    assert summarise(run, Prices(gpu_hour=2.0, gpu_hours=5.0)).cost.price == 10.0
    by_time = summarise(run, Prices(gpu_hour=3600.0)).cost
    assert by_time.price == pytest.approx(by_time.seconds)
    assert summarise(run).cost.price is None


def test_prices_and_warnings_in_the_tables(pair, call, tmp_path):
    _, out, _ = call(pair[1], "--gpu-price", 2, "--gpu-hours", 5)
    assert next(line.split()[1] for line in out.splitlines() if line.split()[:1] == ["price"]) == "10.00"
    assert "price" not in call(pair[1])[1]
    failing = write_run(tmp_path / "failing", [ended(TreeBuilder().freeze(), "failed", "HTTP 500")])
    _, _, err = call(pair[0], failing)
    assert "warning: failing: 1 of 1 problems failed" in err
