"""docs/formats.md describes the columns that are written, no others."""

import re
from pathlib import Path

import pytest

from treeforge.export import FORMATS
from treeforge.export.card import type_name
from treeforge.store.given import GIVEN
from treeforge.store.scores import SCORES
from treeforge.store.tables import COMPRESSED, NODES, ROLLOUTS, VALUES

TEXT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


def documented(heading):
    section = TEXT.split(f"### {heading}\n")[1].split("\n#")[0]
    return re.findall(r"^\| `(\w+)` \| ([^|]*) \| (.*) \|$", section, re.MULTILINE)


@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda format: format.name)
def test_exported_columns(format):
    assert documented(f"`{format.name}`") == [(c.name, type_name(c.kind), c.about) for c in format.columns]
    assert format.about in TEXT


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("`given.parquet`", GIVEN),
        ("`trees/nodes-*.parquet`", NODES),
        ("`trees/rollouts-*.parquet`", ROLLOUTS),
        ("`labels/values-*.parquet`", VALUES),
        ("`scores/MODEL/part-*.parquet`", SCORES),
        ("`compressed/nodes-*.parquet`", [field for field in COMPRESSED if field.name not in NODES.names]),
    ],
)
def test_columns_of_the_run_folder(heading, schema):
    assert [row[:2] for row in documented(heading)] == [(field.name, type_name(field.type)) for field in schema]
