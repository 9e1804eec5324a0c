"""The list of problems: what is counted, searched, filtered, sorted and paged."""

import pytest
from support.folders import ended, engine_error, write_run

from treeforge import views
from treeforge.errors import ConfigError
from treeforge.problem import make_problem
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder, TreeRecord
from treeforge.verdict import Verdict
from treeforge.view.index import Query, find, problem_index

QUESTIONS = ["How MANY apples?", "[regex.*(", "ΑΒΓ and שלום", "apples again", "open"]


def answers(*verdicts, own=(0, 0)):
    builder = TreeBuilder()
    for verdict in verdicts:
        builder.add(0, f"{builder.size}", finish=Finish.ANSWERED, answer="7", verdict=verdict)
    builder.rollouts_correct[0], builder.rollouts[0] = own
    return builder.freeze()


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    right, wrong = Verdict.CORRECT, Verdict.INCORRECT
    failed = TreeRecord("", answers(), (engine_error(0),), "failed", "HTTP 500")
    trees = [
        answers(right, right, right, wrong),
        answers(wrong, Verdict.UNDECIDED, Verdict.UNPARSABLE),
        answers(right, own=(4, 9)),
        failed,
        None,
    ]
    problems = [make_problem(text, "7", problem_id=f"id-{n}") for n, text in enumerate(QUESTIONS)]
    path = write_run(tmp_path_factory.mktemp("index") / "run", trees, problems=problems)
    return problem_index(RunFolder.open(path))


def numbers(index, **query):
    matching, rows = find(index, Query(**query))
    assert matching >= len(rows)
    return [row["number"] for row in rows]


def test_a_row_says_how_its_problem_ended(index):
    _, rows = find(index, Query())
    counted = [(row["status"], row["nodes"], row["completions"], row["accuracy"], row["disputed"]) for row in rows]
    assert counted == [
        ("done", 5, 4, 0.75, 0),
        ("done", 4, 2, 0.0, 2),
        ("done", 2, 10, 0.5, 0),
        ("failed", 1, 0, None, 0),
        ("open", 0, 0, None, 0),
    ]
    assert rows[0]["variance"] == pytest.approx(3 / 16)
    assert rows[3]["variance"] is None
    assert rows[3]["reason"] == "HTTP 500"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"text": "APPLES"}, [0, 3]),
        ({"text": "[regex.*("}, [1]),
        ({"text": "αβγ"}, [2]),
        ({"text": "id-4"}, [4]),
        ({"text": "nothing"}, []),
        ({"status": "done"}, [0, 1, 2]),
        ({"least": 0.5}, [0, 2]),
        ({"most": 0.5}, [1, 2]),
        ({"least": 0.5, "most": 0.5}, [2]),
        ({"smallest": 4}, [0, 1]),
        ({"disputed": True}, [1]),
        ({"variance": True}, [0, 2]),
        ({"sort": "accuracy"}, [1, 2, 0, 3, 4]),
        ({"sort": "accuracy", "descending": True}, [0, 2, 1, 3, 4]),
        ({"sort": "nodes", "descending": True}, [0, 1, 2, 3, 4]),
        ({"descending": True}, [4, 3, 2, 1, 0]),
        ({"offset": 1, "limit": 2}, [1, 2]),
        ({"offset": 9}, []),
    ],
)
def test_queries(index, query, found):
    assert numbers(index, **query) == found


def test_a_page_says_how_many_match(index):
    assert find(index, Query(status="done", limit=1))[0] == 3


@pytest.mark.parametrize("query", [{"sort": "size"}, {"limit": 501}, {"limit": -1}, {"offset": -1}])
def test_other_queries_are_refused(query):
    with pytest.raises(ConfigError):
        Query(**query)


def test_answers_that_a_recheck_changed_are_disputed(tmp_path):
    problem = make_problem("How many?", "0.5", problem_id="half")
    builder = TreeBuilder()
    builder.add(0, "The answer is 1/2", finish=Finish.ANSWERED, answer="1/2", verdict=Verdict.INCORRECT)
    path = write_run(tmp_path / "run", [ended(builder.freeze())], problems=[problem])
    assert numbers(problem_index(RunFolder.open(path)), disputed=True) == []
    views.recheck(path)
    assert numbers(problem_index(RunFolder.open(path)), disputed=True) == [0]
