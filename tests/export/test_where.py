"""Conditions on rows: what they take, and what is refused."""

from pathlib import Path

import polars as pl
import pytest
from support.forest import blocks, forest

from treeforge.config import ExportConfig
from treeforge.errors import ConfigError
from treeforge.export import CardInfo, export
from treeforge.export.filters import Condition
from treeforge.export.filters.sql import ROW_FUNCTIONS
from treeforge.export.formats import FORMATS, Context
from treeforge.export.schemas import make_table


def write(trees, out, formats=("hrm",), where=""):
    config = ExportConfig(formats=formats, validation_share=0.2, rows_per_shard=100, where=where)
    report = export(blocks(trees), out, config, CardInfo())
    frames = {
        format.name: pl.concat([pl.read_parquet(file) for file in sorted((out / format.folder).glob("*.parquet"))])
        for format in report.formats
    }
    return report, frames, (out / "README.md").read_text()


def test_where_goes_by_the_columns_of_each_format(tmp_path):
    _, all_rows, _ = write(forest(20), tmp_path / "all", ("hrm", "rl"))
    report, frames, card = write(forest(20), tmp_path / "out", ("hrm", "rl"), where="span = 2 AND soft > 0.5")
    expected = all_rows["hrm"].filter((pl.col("span") == 2) & (pl.col("soft") > 0.5))
    assert frames["hrm"].equals(expected)
    assert frames["rl"].height == 20, "a format without these columns is left alone"
    assert report.formats[0].left_out["row that fails the condition"] == all_rows["hrm"].height - expected.height
    pairs = [split.pairs for split in report.formats[0].splits.values()]
    assert all(set(kinds) <= {"++", "+-", "-+", "--"} for kinds in pairs)
    assert sum(sum(kinds[k] for k in ("+-", "--")) for kinds in pairs) == 0, "the kinds of pairs follow the rows"
    assert "span = 2 AND soft" in card


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nothing = 1", "no format of this export has all of nothing. Columns are hrm: prompt, previous"),
        ("span + 1", "does not say true or false"),
        ("max(soft) > 0.5", "calls max(), which is no known function of one row"),
        ("rollouts > avg(rollouts)", "calls avg()"),
        ('soft > "Sum" /* all */ (soft)', "calls sum()"),
        ("rank() OVER (ORDER BY soft) > 1", "calls rank()"),
        ("soft > abs(soft) OVER (PARTITION BY span)", "holds OVER"),
        ("unnest(merged_from) = 1", "calls unnest()"),
        ("soft > (SELECT 1)", "holds SELECT"),
        (" OR ".join(["span = 1"] * 51), "has 101 operators; 100 are the most. Many values of one column are one term"),
        ("span = 1" + " " * 20_000, "20,008 characters; 20,000 are the most"),
        ("(" * 13 + "hard" + ")" * 13, "is nested too deep"),
        ("abs(" * 4 + "soft" + ")" * 4 + " > 0", "is nested too deep"),
        ("merged_from[merged_from[merged_from[merged_from[1]]]] = 1", "is nested too deep"),
        ("1 = 1", "names no column"),
        ("SELECT * FROM read_csv('/etc/passwd')", "holds SELECT"),
        ("span = 'one' AND", "is no SQL condition"),
        ("span IN (SELECT 1)", "holds SELECT"),
        ("prompt + 1 = soft", "fails on hrm"),
    ],
)
def test_conditions_that_cannot_be(tmp_path, where, message):
    with pytest.raises(ConfigError, match=r"--where \(export\.where\)") as error:
        write(forest(2), tmp_path / "out", where=where)
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "where",
    [
        " OR ".join(["span = 1"] * 50),
        f"span IN ({', '.join(map(str, range(3000)))})",
        "span IN (-1, -2, 1) AND NOT (hard)",
        "current <> 'sum(x) OVER it''s SELECT'",
        "CASE WHEN (soft) > 0.5 THEN hard ELSE round(abs(soft), 1) >= 0 END -- avg(soft)",
        "soft::decimal(10, 2) > 0.1",
    ],
)
def test_conditions_that_are_long_or_look_like_others(tmp_path, where):
    _, frames, _ = write(forest(8), tmp_path / "out", where=where)
    assert frames["hrm"].height > 0


NAMES = {
    "{}(soft)": "abs acos asin atan cbrt ceil ceiling cos degrees exp floor ln log10 log1p log2 radians sign sin sqrt "
    "tan",
    "{}(current)": "bit_length char_length character_length initcap length lower ltrim octet_length reverse rtrim trim "
    "upper",
    "{}(current, 'S')": "concat ends_with regexp_like starts_with strpos",
    "{}(merged_from)": "array_length array_lower array_mean array_reverse array_sum array_unique array_upper",
    "{}(soft, low)": "atan2 coalesce greatest ifnull least nullif",
    "{}(rollouts, 2)": "div log mod pow power",
    "{}(current, 5)": "left right substr substring",
    "{}(merged_from, 1)": "array_contains array_get",
    "{}(string_to_array(current, ' '), '-')": "array_to_string",
    "{}('-', current, prompt)": "concat_ws",
    "{}(hard, soft, low)": "if",
    "{}('3' in current)": "position",
    "{}(current, 'S', 'T')": "replace",
    "{}(soft, 1)": "round",
    "{}(current, ' ', 2)": "split_part",
    "{}(current, ' ')": "string_to_array",
}
CALLS = {name: call.format(name) for call, names in NAMES.items() for name in names.split()}


@pytest.fixture(scope="module")
def hrm_rows():
    """Rows of several blocks in one piece, with lists in `merged_from` and steps without a label."""
    context = Context()
    pieces = [rows for block in blocks(forest(12)) for rows in FORMATS["hrm"].rows(block, context) if rows.count]
    frame = pl.concat([pl.from_arrow(make_table(rows.columns, FORMATS["hrm"].schema)) for rows in pieces])
    lists = pl.Series([[number, 1] if number % 2 else [] for number in range(frame.height)], dtype=pl.List(pl.Int32))
    return frame.with_columns(merged_from=lists)


def test_every_function_of_a_condition_is_tried_and_in_the_docs():
    assert set(CALLS) == ROW_FUNCTIONS
    docs = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    assert ", ".join(f"`{name}`" for name in sorted(ROW_FUNCTIONS)) in " ".join(docs.split())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_function_says_of_a_row_what_it_says_of_it_alone(hrm_rows, call):
    condition = Condition(f"{call} IS DISTINCT FROM {call.replace('soft', 'high')}")
    assert condition.applies(FORMATS["hrm"])
    expression = pl.sql_expr(call).alias("_")
    alone = pl.concat([row.select(expression) for row in hrm_rows.iter_slices(1)])
    assert hrm_rows.select(expression).equals(alone, null_equal=True)


def test_a_condition_takes_the_same_rows_of_many_blocks_as_of_one_table(tmp_path):
    where = "(rollouts >= 4 AND abs(soft - 0.5) > 0.2) OR length(current) = 19"
    _, everything, _ = write(forest(30), tmp_path / "all")
    _, frames, _ = write(forest(30), tmp_path / "out", where=where)
    expected = everything["hrm"].sql(f"SELECT * FROM self WHERE {where}")
    assert frames["hrm"].equals(expected)
    assert 0 < expected.height < everything["hrm"].height
