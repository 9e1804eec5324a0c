"""The tree on a terminal: every node once, in its place, in width, and deaf to what models write."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from support.folders import ended, engine_error, rollouts_of
from support.strategies import trees

from treeforge.config import LabelConfig
from treeforge.label.steps import label_nodes
from treeforge.printable import print_lines
from treeforge.problem import make_problem
from treeforge.tree import Finish, TreeBuilder
from treeforge.value import estimate
from treeforge.verdict import Verdict
from treeforge.view import ValuedTree, best_path
from treeforge.view.best import worst_path
from treeforge.view.outline import outline
from treeforge.view.terminal import node_lines, problem_lines, tree_lines

HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]not red[/red] \u202egnp.exe\u2066 \x9b31m\ttab\rover\nnext שלום \x00\x7f"
STEP = re.compile(r"((?:[│├└⋯ ] )*)(\d+)(.*)$")
"""What stands in the last column: guides, node and the rest."""


def valued(tree, rollouts=None):
    values, config = estimate(tree), LabelConfig()
    record = ended(tree) if rollouts is None else type(ended(tree))("", tree, tuple(rollouts), "done", "")
    return ValuedTree(
        number=3,
        problem=make_problem("How many?", "7", problem_id="some-id"),
        record=record,
        values=values,
        hard=label_nodes(tree, values, config).hard,
        saved=True,
        config=config,
    )


def drawn(tree, *, width=80, **options):
    shown = valued(tree)
    best = best_path(tree, shown.values, shown.record.rollouts)
    return [line.plain for line in outline(shown, best, Console(width=width), **options)]


def rows(lines):
    """[(depth, node, rest)] of the outline's lines, whose last column is headed `step`."""
    column = lines[0].index("step")
    found = [STEP.match(line[column:]) for line in lines if line[:column].strip("* ")]
    return [(len(m[1]) // 2, int(m[2]), m[3]) for m in found if m]


def preorder(tree):
    children, stack, order = tree.children(), [0], []
    while stack:
        order.append(stack.pop())
        stack += reversed(children[order[-1]])
    return order


def small_tree(text="First we add.\n", answer="7"):
    builder = TreeBuilder()
    step = builder.add(0, text, token_count=4, logprob=-1.0)
    builder.multiplicity[step] = 2
    builder.rollouts[step], builder.rollouts_correct[step] = 3, 1
    builder.add(step, f"So it is {answer}.", finish=Finish.ANSWERED, answer=answer, verdict=Verdict.CORRECT)
    builder.add(step, "So it is 8.", finish=Finish.ANSWERED, answer="8", verdict=Verdict.INCORRECT)
    builder.add(0, "Well", finish=Finish.TRUNCATED, verdict=Verdict.NO_ANSWER)
    builder.add(0, "Hm", finish=Finish.STOP, verdict=Verdict.NO_ANSWER)
    builder.add(0, "It is \\foo", finish=Finish.ANSWERED, answer="\\foo", verdict=Verdict.UNPARSABLE)
    builder.add(0, "It is x", finish=Finish.ANSWERED, answer="x", verdict=Verdict.UNDECIDED)
    builder.add(0, "", finish=Finish.ERROR)
    return builder.freeze()


def test_a_style_ends_where_it_should():
    shown = valued(small_tree())
    best = best_path(shown.record.tree, shown.values, shown.record.rollouts)
    console = Console(width=80)
    lines = [*outline(shown, best, console), *tree_lines(shown, best, console), *node_lines(shown, 1, console)]
    whole = [line.plain for line in lines if line.style]
    assert all(
        text.startswith(("  value", "* best", "×m:", "The prefix", "Children", "Prefix", "Own", "  …"))
        for text in whole
    )
    step = next(line for line in lines if "8 So it is 8." in line)
    assert {span.style for span in step.spans if span.end > step.plain.index("So")} <= {""}


@given(trees(), st.sampled_from([60, 80, 120]))
@settings(max_examples=60, deadline=None)
def test_every_node_stands_once_in_its_place(tree, width):
    lines = drawn(tree, width=width)
    found = rows(lines)
    assert [node for _, node, _ in found] == preorder(tree)
    if width >= 80 and tree.depth.max() <= 12:
        assert [depth for depth, _, _ in found] == [tree.depth[node] for _, node, _ in found]
    assert all(cell_len(line) <= width for line in lines)


@given(trees(), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_depth_hides_and_counts_what_is_below(tree, depth):
    found = rows(drawn(tree, depth=depth))
    assert [node for _, node, _ in found] == [node for node in preorder(tree) if tree.depth[node] <= depth]
    hidden = sum(int(m[1]) for _, _, rest in found if (m := re.search(r" \+(\d+)", rest)))
    assert hidden + len(found) == tree.size


@given(trees(max_nodes=60), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_lines_are_bounded_and_the_rest_is_told(tree, most):
    lines = drawn(tree, most=most)
    found = rows(lines)
    assert 1 <= len(found) <= most
    if len(found) < tree.size:
        assert f"{len(found)} of {tree.size} nodes are shown" in lines[-2]
        assert "--lines" in lines[-2]
        # Whole levels, unless the first alone is too large.
        depths = [depth for depth, _, _ in found]
        assert len(found) == sum(tree.depth <= max(depths)) or max(depths) <= 1
    else:
        assert not any("--lines" in line for line in lines)


def test_a_small_tree_to_the_letter():
    assert drawn(small_tree()) == [
        "  value interval n own step",
        "*  0.16  .03–.59 8     0 (the question)",
        "*  0.40  .14–.73 5 1/3 ├ 1 ×2 First we add.",
        "*  1.00          1     │ ├ 2 ✓ 7 So it is 7.",
        "   0.00          1     │ └ 3 ✗ 8 So it is 8.",
        "   0.00          1     ├ 4 ✗ truncated Well",
        "   0.00          1     ├ 5 ✗ no answer Hm",
        "   0.00          1     ├ 6 ✗ \\foo unparsable It is \\foo",
        "      –          0     ├ 7 ? x undecided It is x",
        "      –          0     └ 8 ! engine error",
    ]


def everything(tree, rollouts=None, width=80, colour=False, **options):
    """All that `show` can print of a tree, as the terminal gets it."""
    shown = valued(tree, rollouts)
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        markup=False,
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
    )
    best = best_path(tree, shown.values, shown.record.rollouts)
    problem = make_problem(HOSTILE, HOSTILE, problem_id=HOSTILE)
    print_lines(console, problem_lines(3, problem, ("failed", HOSTILE), console))
    worst = worst_path(tree, shown.values, shown.record.rollouts)
    print_lines(console, tree_lines(shown, best, console, worst=worst, **options))
    for node in range(tree.size):
        print_lines(console, node_lines(shown, node, console))
    return out.getvalue()


@pytest.mark.parametrize("full", [True, False])
def test_hostile_text_is_only_text(full):
    builder = TreeBuilder()
    node = builder.add(0, HOSTILE, observation=HOSTILE)
    builder.rollouts[node] = builder.rollouts_correct[node] = 1
    builder.add(0, HOSTILE, finish=Finish.ANSWERED, answer=HOSTILE, verdict=Verdict.CORRECT)
    tree = builder.freeze()
    rollout = rollouts_of(tree)[0]
    hostile_rollout = type(rollout)(node, (HOSTILE, HOSTILE), HOSTILE, rollout.verdict, rollout.finish, 3, -1.0)
    rollouts = [hostile_rollout, engine_error(node, HOSTILE)]
    text = everything(tree, rollouts, full=full)
    assert all(character.isprintable() for line in text.split("\n") for character in line)
    assert "[red]not red[/red]" in text
    assert "שלום" in text
    # With colours on, rich's own sequences are the only ones: take them out and the same text is left.
    assert re.sub(r"\x1b\[[0-9;]*m", "", everything(tree, rollouts, full=full, colour=True)) == text


@given(trees(max_nodes=25), st.booleans())
@settings(max_examples=30, deadline=None)
def test_everything_is_shown_within_the_width(tree, full):
    text = everything(tree, full=full)
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert ("Best path" in text) == bool((tree.verdict == Verdict.CORRECT).any() or tree.rollouts_correct.any())


def test_whole_texts_are_folded_under_their_guides():
    words = " ".join(f"word{n}" for n in range(40))
    lines = drawn(small_tree(words + "\n"), full=True)
    column = lines[0].index("step")
    at = next(n for n, line in enumerate(lines) if "word0" in line)
    assert lines[at + 1][:column].isspace()
    assert lines[at + 1][column:].startswith("│ │ ")
    assert " ".join(" ".join(lines).split()).count("word39") == 1
    assert [node for _, node, _ in rows(lines)][:3] == [0, 1, 2]


def test_texts_are_shortened_to_the_line_and_told_where_more_is_cut():
    line = drawn(small_tree("x" * 5_000))[2]
    assert cell_len(line) == 80
    assert line.endswith("x…")
    shown = valued(small_tree("word " * 1_000))
    best = best_path(shown.record.tree, shown.values, shown.record.rollouts)
    short, whole = (
        "\n".join(line.plain for line in tree_lines(shown, best, Console(width=80), full=full))
        for full in (False, True)
    )
    assert "3,000 more characters (--full)" in short
    assert "more characters" not in whole
    assert whole.count("word") == 2_000


def test_the_best_path_goes_on_with_a_rollout():
    builder = TreeBuilder()
    node = builder.add(0, "First.\n")
    builder.rollouts[node] = builder.rollouts_correct[node] = 1
    shown = valued(builder.freeze())
    best = best_path(shown.record.tree, shown.values, shown.record.rollouts)
    lines = [line.plain for line in tree_lines(shown, best, Console(width=80))]
    at = next(n for n, line in enumerate(lines) if line.startswith("Best path"))
    assert [line.split(".")[0].strip() for line in lines[at + 1 :] if re.match(r" +\d+\. ", line)] == ["1", "2", "3"]
    assert lines[-1].strip() == "✓ 7"


def test_a_node_is_told_whole():
    tree = small_tree()
    shown = valued(tree)
    text = "\n".join(line.plain for line in node_lines(shown, 1, Console(width=80)))
    assert "depth 1, parent 0" in text
    assert "outcomes    5 decided, 0 undecided" in text
    assert "hard label  0 (threshold 0.5)" in text
    assert "3 own: 1 correct, 0 undecided, 0 truncated" in text
    assert "tokens      4, log-probability -1.00" in text
    assert "Children (2)" in text
    assert "Own rollouts (3)" in text
    assert text.count("and so") == text.count("the answer") == 3
    end = "\n".join(line.plain for line in node_lines(shown, 2, Console(width=80)))
    assert "ended       ✓ 7" in end
    assert end.index("First we add.") < end.rindex("So it is 7.")
    assert "The prefix is empty" in "\n".join(line.plain for line in node_lines(shown, 0, Console(width=80)))


def test_a_chain_too_deep_to_indent_keeps_its_texts():
    builder = TreeBuilder()
    node = 0
    for step in range(2_000):
        node = builder.add(node, f"step {step}\n")
    lines = drawn(builder.freeze(), most=10_000)
    assert len(rows(lines)) == 2_001
    assert all(cell_len(line) <= 80 for line in lines)
    assert "⋯" in lines[-1]
    assert lines[-1].endswith("2000 step 1999")


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["bushy", "star", "chain"])
def test_a_hundred_thousand_nodes_are_cut_to_what_can_be_read(shape):
    builder = TreeBuilder()
    size = 20_000 if shape == "chain" else 100_000  # a depth is an int16
    for row in range(1, size):
        builder.add({"bushy": (row - 1) // 4, "star": 0, "chain": row - 1}[shape], f"step {row}\n")
    lines = drawn(builder.freeze())
    assert 300 < len(rows(lines)) <= 400
    assert f"of {size:,} nodes are shown" in lines[-2]


@given(trees(max_nodes=25), st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_worst_path_stands_beside_the_best_where_there_is_room(tree, full):
    wide, narrow = everything(tree, width=130, full=full), everything(tree, width=80, full=full)
    assert all(cell_len(line) <= 130 for line in wide.splitlines())
    shown = valued(tree)
    worst = worst_path(tree, shown.values, shown.record.rollouts)
    assert ("Worst path" in wide) == ("Worst path" in narrow) == (worst is not None)
    heading = next((line for line in wide.splitlines() if "Worst path" in line), "est path")
    assert "est path" in heading.split("│")[0]
    assert not any(line.startswith("Best path") and "Worst path" in line for line in narrow.splitlines())


def test_steps_that_both_paths_share_are_told_once():
    builder = TreeBuilder()
    first = builder.add(0, "Both begin so.\n")
    builder.add(first, "7", finish=Finish.ANSWERED, answer="7", verdict=Verdict.CORRECT)
    builder.add(first, "8", finish=Finish.ANSWERED, answer="8", verdict=Verdict.INCORRECT)
    text = everything(builder.freeze(), width=80).split("Best path")[1].split("Node 0")[0]
    best, worst = text.split("Worst path")
    assert "Both begin so." in best
    assert "… 1 step of the best path, then:" in worst
    assert "Both begin so." not in worst
    assert "2. 0.00" in worst
