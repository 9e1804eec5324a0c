"""The example rows of docs/import.md are rows that can be imported."""

from pathlib import Path

import pytest

from treeforge.importing import import_file

PAGE = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")


def rows() -> list[tuple[str, str]]:
    """(format, row) of each example: a name, rows of its own beneath each other, longer ones folded."""
    block = PAGE.partition("One row of each, shortened:\n\n")[2].partition("\n\n")[0]
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        name, row = line[4:19].strip(), line[19:]
        if name or row.startswith("{"):
            found.append((name or found[-1][0], row))
        else:
            found[-1] = (found[-1][0], found[-1][1] + row)
    return found


@pytest.mark.parametrize(("name", "row"), rows())
def test_an_example_row_is_imported(tmp_path, name, row):
    (tmp_path / "rows.jsonl").write_text(row + "\n", encoding="utf-8")
    report = import_file(tmp_path / "rows.jsonl", name, tmp_path / "run")
    assert (report.rows, report.skipped, report.negative) == (1, 0, int(name == "processbench"))
    assert report.steps == report.positive + report.negative + report.unlabelled >= 1


def test_every_row_of_the_page_is_there():
    assert [name for name, _ in rows()] == [
        "prm800k",
        "math-shepherd",
        "prm",
        "processbench",
        "openr",
        "openr",
        "openr",
        "rest-mcts",
        "rest-mcts",
    ]
