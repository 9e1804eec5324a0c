import pytest

from treeforge.stats.sittings import read_sittings

LINE = '{"event": "sitting", "seconds": 1.5, "requests": 3, "completions": 12, "tokens": 90, "trees": 2}\n'


def test_sittings_add_up_over_torn_and_foreign_lines(tmp_path):
    file = tmp_path / "run.jsonl"
    file.write_bytes((LINE + '{"event": "other"}\n\n[1]\n\xff\n' + LINE + LINE[:40]).encode("latin-1"))
    found = read_sittings(file)
    assert (found.sittings, found.seconds, found.tokens) == (2, 3.0, 180)


@pytest.mark.parametrize("content", [None, "", '{"event": "sitting", "seconds": "long"}', "[" * 5_000])
def test_nothing_to_read_is_none(tmp_path, content):
    file = tmp_path / "run.jsonl"
    if content is not None:
        file.write_text(content)
    assert read_sittings(file) is None
