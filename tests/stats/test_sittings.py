import json

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


def test_prompts_are_those_of_the_sittings_that_knew_them(tmp_path):
    file = tmp_path / "run.jsonl"
    file.write_text(LINE)
    assert (read_sittings(file).prompt_tokens, read_sittings(file).cached_tokens) == (None, None)
    knew = LINE.replace("}", ', "prompt_tokens": 40, "cached_tokens": 30}')
    file.write_text(knew + LINE + knew)
    assert (read_sittings(file).prompt_tokens, read_sittings(file).cached_tokens) == (80, 60)


def noted(**checker):
    return json.dumps({"event": "sitting", "seconds": 1.0, "tokens": 1, "checker": checker}) + "\n"


def test_checks_add_up_and_the_slowest_stay(tmp_path):
    file = tmp_path / "run.jsonl"
    first = noted(
        hits=1,
        checks=3,
        routes={"exact": 3},
        verdicts={"correct": 2, "undecided": 1},
        seconds=0.5,
        slowest=[[0.3, "a", "b"]],
    )
    second = noted(
        hits=0, checks=1, routes={"string": 1}, verdicts={"correct": 1}, seconds=0.4, slowest=[[0.4, "c", "d"]]
    )
    file.write_text(first + LINE + second)
    found = read_sittings(file).checker
    assert (found.checks, found.hits, found.hit_share, found.undecided_share) == (4, 1, 0.2, 0.25)
    assert found.seconds == pytest.approx(0.9)
    assert (found.routes, found.verdicts) == ({"exact": 3, "string": 1}, {"correct": 3, "undecided": 1})
    assert [(slow.seconds, slow.answer, slow.gold_answer) for slow in found.slowest] == [
        (0.4, "c", "d"),
        (0.3, "a", "b"),
    ]


def test_a_run_by_another_judge_has_no_checks(tmp_path):
    file = tmp_path / "run.jsonl"
    file.write_text(LINE + noted(hits=0, checks=0))
    assert read_sittings(file).checker is None
