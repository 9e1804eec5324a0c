"""Lists, tuples, vectors, matrices and set operations, compared item by item."""

from __future__ import annotations

from collections.abc import Sequence

from treeforge.label.names import bare_values
from treeforge.label.numeric import Answer
from treeforge.label.rewrite import fold_matrices, items_of
from treeforge.label.rules import Rules, pairwise, unordered
from treeforge.label.syntax import Matrix, Node, Seq, SetOp


def same_sequences(a: Node, b: Node, rules: Rules) -> Answer | None:
    """Bare lists, tuples and sets by their brackets, in order or not; None where neither side is one."""
    if not isinstance(a, Seq) and not isinstance(b, Seq):
        return None
    if not isinstance(a, Seq) or not isinstance(b, Seq):
        listed, other = (a, b) if isinstance(a, Seq) else (b, a)
        assert isinstance(listed, Seq)
        if isinstance(other, SetOp) or listed.left not in ("", "{"):
            return Answer(False, "exact", "a list and something else")
        return unordered(items_of(a), items_of(b), rules)
    x, y = a.left + a.right.replace("or", ""), b.left + b.right.replace("or", "")
    orderless = ("", "{}") if rules.policy.lists == "unordered" else ("{}",)
    if x in orderless and y in orderless:
        return unordered(items_of(a), _elements(b), rules)
    for left, right in ((a, b), (b, a)):
        if left.left == "{" and right.left == "(" and len(left.items) == 1 and isinstance(left.items[0], Seq):
            return rules.same(left.items[0], right, rules)
    if "{}" in (x, y) and x != y:
        return (
            unordered(items_of(a), _elements(b), rules) if "" in (x, y) else Answer(False, "exact", "a set and a tuple")
        )
    if x != y:
        loose = rules.policy.brackets == "loose" and {x, y} <= {"()", "[]", ""}
        bare = rules.policy.bare_tuple and "" in (x, y) and ({x, y} & {"()", "<>"} or len(a.items) > 2)
        vectors = {x, y} == {"()", "<>"}
        if not (loose or bare or vectors):
            return Answer(False, "exact", f"brackets {x or 'none'} and {y or 'none'}")
    items = bare_values(a.items, b.items)
    return pairwise(items[0], items[1], rules)


def _elements(node: Seq) -> tuple[Node, ...]:
    """The items of a list; the elements of a set without repetition."""
    items = items_of(node)
    if node.left != "{":
        return items
    found: list[Node] = []
    for item in items:
        if item not in found:
            found.append(item)
    return tuple(found)


def same_matrices(a: Node, b: Node, rules: Rules) -> Answer | None:
    """Matrices, and vectors in whatever form; None where neither side is or makes a matrix."""
    if isinstance(a, Matrix) or isinstance(b, Matrix):
        a, b = _from_rows(a), _from_rows(b)
    a = a if isinstance(a, Seq) else fold_matrices(a)
    b = b if isinstance(b, Seq) else fold_matrices(b)
    if isinstance(a, Matrix) and isinstance(b, Matrix):
        if (len(a.rows), len(a.rows[0])) != (len(b.rows), len(b.rows[0])):
            return Answer(False, "exact", "matrices of different shapes")
        return pairwise([c for row in a.rows for c in row], [c for row in b.rows for c in row], rules)
    if isinstance(a, Matrix) or isinstance(b, Matrix):
        x, y = _vector(a), _vector(b)
        if x is None or y is None:
            return Answer(False, "exact", "a matrix and something else")
        return pairwise(x, y, rules)
    return None


def _from_rows(node: Node) -> Node:
    """`[[1, 2], [3, 4]]` as a matrix."""
    if not isinstance(node, Seq) or node.left + node.right != "[]":
        return node
    rows = [item.items for item in node.items if isinstance(item, Seq) and item.left + item.right == "[]"]
    if len(rows) != len(node.items) or len({len(row) for row in rows}) != 1:
        return node
    return Matrix(tuple(rows))


def _vector(node: Node) -> Sequence[Node] | None:
    """The entries of a row, a column, or a bracketed list."""
    if isinstance(node, Matrix):
        if len(node.rows) == 1:
            return node.rows[0]
        return [row[0] for row in node.rows] if len(node.rows[0]) == 1 else None
    return node.items if isinstance(node, Seq) and node.left + node.right in ("()", "[]", "<>") else None


def same_set_operations(a: Node, b: Node, rules: Rules) -> Answer | None:
    """Unions, intersections and differences that are no sets of reals; None where neither side is one."""
    if not isinstance(a, SetOp) and not isinstance(b, SetOp):
        return None
    if not isinstance(a, SetOp) or not isinstance(b, SetOp) or a.op != b.op or len(a.args) != len(b.args):
        return Answer(False, "exact", "different sets")
    if a.op == "difference":
        return pairwise(a.args, b.args, rules)
    return unordered(a.args, b.args, rules)
