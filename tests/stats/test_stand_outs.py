"""Problems to look at, and that one finds them in the table."""

import pytest
from support.folders import ended, rollouts_of, write_run
from support.runs import problems, scripted_config

from treeforge.cli import invoke
from treeforge.pipeline import run as run_pipeline
from treeforge.stats import summarise
from treeforge.store.journal import Journal
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict


def answers(*given, multiplicity=1.0, rollouts=0):
    """A leaf an answer, wrong unless it is `right`; so many wrong own rollouts of the root that say 7."""
    builder = TreeBuilder()
    builder.rollouts[0] = rollouts
    for answer in given:
        verdict = Verdict.CORRECT if answer == "right" else Verdict.INCORRECT
        row = builder.add(0, answer, finish=Finish.ANSWERED, answer=answer, verdict=verdict)
        builder.multiplicity[row] = multiplicity
    return builder.freeze()


def test_wrong_answers_that_agree_are_suspicious(tmp_path):
    some = [
        answers("12", "1 2", "13", multiplicity=2),  # 4 of 6 say 12
        answers("1", "2", "3", "4"),  # nobody agrees
        answers("9", "9", "9", "right"),  # one is right
        answers("5", "5"),  # too few
        answers("8", rollouts=4),  # 4 of 5 rollouts say 7
        answers("right", "right"),
    ]
    found = summarise(RunFolder.open(write_run(tmp_path / "run", some))).stand_outs
    assert [(note.problem_id, note.answer, note.gold_answer) for note in found.suspicious] == [
        ("sum-4", "7", "8"),
        ("sum-0", "12", "0"),
    ]
    assert [note.agreement for note in found.suspicious] == [0.8, pytest.approx(4 / 6)]
    assert [note.problem_id for note in found.no_signal] == ["sum-5"]
    assert found.no_signal[0].tokens == 0
    assert found.costly == ()


def test_what_took_far_more_tokens_is_costly(tmp_path):
    path = write_run(tmp_path / "run", [answers("1")] * 6, block=6)
    journal = Journal.open(path / "journal.sqlite")
    from treeforge.sample import Request, Sample

    for number in range(6):
        tokens = 100 if number == 3 else 10
        request = Request(
            problem=problems(6)[number], prefix="", n=1, mode="rollout", seed=0, digest=bytes([number]), tree=number
        )
        journal.record(request, (Sample("x", "stop", tokens),))
    journal.close()
    (note,) = summarise(RunFolder.open(path)).stand_outs.costly
    assert (note.problem_id, note.tokens, note.share_correct) == ("sum-3", 100, 0.0)


def test_hostile_answers_cannot_speak_in_the_table(tmp_path, capsys):
    path = write_run(tmp_path / "run", [answers(*["\x1b[31m[red]7\u202e"] * 4)])
    assert invoke(["stats", str(path)]) == 0
    out = capsys.readouterr().out
    assert "100.0% say ␛[31m[red]7" in out
    assert not set("\x1b\u202e") & set(out)


def test_rollouts_without_an_answer_agree_on_nothing(tmp_path):
    tree = TreeBuilder()
    tree.rollouts[0] = tree.rollouts_truncated[0] = 5
    frozen = tree.freeze()
    assert {rollout.finish for rollout in rollouts_of(frozen)} == {Finish.TRUNCATED}
    path = write_run(tmp_path / "run", [ended(frozen)])
    assert summarise(RunFolder.open(path)).stand_outs.suspicious == ()


def test_screened_out_problems_are_counted_and_listed(tmp_path, capsys):
    run_pipeline(problems(6), tmp_path / "run", scripted_config(screen=4, keep="0.5..0.5"))
    summary = summarise(RunFolder.open(tmp_path / "run"))
    out = summary.problems.screened_out
    assert 0 < out <= 6
    assert out == sum(r.problems for r in summary.problems.reasons if r.reason.startswith("screened out"))
    assert invoke(["stats", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "screened out" in shown.split("Trees")[0]
    assert "screened out: " in shown
