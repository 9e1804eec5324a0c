import json

import pytest

from treeforge.stats.effort import MAX_POINTS
from treeforge.stats.load import read_load


def line(seconds, in_flight, rate=100.0):
    return json.dumps({"time": 1.0, "seconds": seconds, "in_flight": in_flight, "tokens_per_second": rate}) + "\n"


def test_sittings_follow_one_another_and_torn_lines_are_passed_over(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(line(0, 4) + "{torn\n" + line(30, 8) + line(1, 2) + '{"seconds": "x"}\n' + line(31, 6)[:20])
    found = read_load(file)
    assert [(point.seconds, point.in_flight) for point in found.points] == [(0, 4), (30, 8), (31, 2)]
    assert (found.in_flight, found.max_in_flight) == (pytest.approx(14 / 3), 8)


def test_long_runs_are_thinned(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(line(second, second % 2) for second in range(10 * MAX_POINTS)))
    found = read_load(file)
    assert len(found.points) == MAX_POINTS
    assert {point.in_flight for point in found.points} == {0.5}
    assert found.points[-1].seconds == 10 * MAX_POINTS - 1


@pytest.mark.parametrize("content", [None, "", "\xff\n[]\n"])
def test_nothing_to_read_is_none(tmp_path, content):
    file = tmp_path / "metrics.jsonl"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    assert read_load(file) is None
