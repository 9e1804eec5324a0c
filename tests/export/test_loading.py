import json

import pytest
from msgspec.structs import replace
from support.forest import blocks, forest
from support.offline import run_offline

from treeforge.config import ExportConfig
from treeforge.errors import DataError
from treeforge.export import CardInfo, export, loading_lines

CONFIG = ExportConfig(formats=("nodes", "hrm"), rows_per_shard=100, validation_share=0.2, test_share=0.1)


@pytest.mark.slow
def test_the_lines_load_what_was_written(tmp_path):
    out = tmp_path / "it's a=b run" / "out"
    report = export(blocks(forest(40)), out, CONFIG, CardInfo())
    code = [f"print(len({name}))" for name in ("frame", "dataset", "table")]
    lines = []
    for format in ("nodes", "hrm"):
        for line, show in zip(loading_lines(out, format), code, strict=True):
            lines += [line, show]
    found = run_offline("\n".join(lines), tmp_path).split()
    nodes, hrm = (str(format.splits["train"].rows) for format in report.formats)
    assert found == [nodes] * 3 + [hrm] * 3


@pytest.mark.slow
def test_datasets_honours_the_card(tmp_path):
    out = tmp_path / "out"
    report = export(blocks(forest(40)), out, CONFIG, CardInfo(title="A: 'title' # with \"marks\""))
    code = """
import datasets, json
default, hrm = datasets.load_dataset("./out"), datasets.load_dataset("./out", "hrm")
features = {name: str(feature) for name, feature in hrm["train"].features.items()}
print(json.dumps([datasets.get_dataset_config_names("./out"),
                  {k: len(v) for k, v in default.items()}, {k: len(v) for k, v in hrm.items()},
                  features, hrm["train"][0]]))
"""
    names, default, hrm, features, row = json.loads(run_offline(code, tmp_path))
    assert sorted(names) == ["hrm", "nodes"]
    for found, format in zip((default, hrm), report.formats, strict=True):
        assert found == {split: counts.rows for split, counts in format.splits.items()}
    assert features["hard"] == "Value('bool')"
    assert features["merged_from"] == "List(Value('int32'))"
    assert row["current"].startswith("Step ")
    assert row["span"] == 1


@pytest.mark.slow
def test_one_format_without_train_rows_loads(tmp_path):
    only = [t for t in forest(100) if _is_test(t)]
    export(blocks(only), tmp_path / "out", replace(CONFIG, formats=("hrm",)), CardInfo())
    code = "import datasets; print(list(datasets.load_dataset('./out')))"
    assert run_offline(code, tmp_path).strip() == "['test']"
    assert all("test-" in line or "split='test'" in line for line in loading_lines(tmp_path / "out", "hrm"))


def _is_test(tree):
    from treeforge.export import split_of

    return split_of(tree.problem.problem_id, CONFIG) == "test"


def test_a_format_that_was_not_written(tmp_path):
    with pytest.raises(DataError, match="no rows of the format 'hrm'"):
        loading_lines(tmp_path, "hrm")
    export(blocks(forest(5)), tmp_path / "out", replace(CONFIG, formats=("nodes",)), CardInfo())
    with pytest.raises(DataError, match="no rows of the format 'hrm'"):
        loading_lines(tmp_path / "out", "hrm")
    assert "data/train-" in loading_lines(tmp_path / "out", "nodes")[0]
