"""The hand-drawn tree of the compression tests."""

from __future__ import annotations

from treeforge.tree import Finish, Tree, TreeBuilder
from treeforge.verdict import Verdict

G, P, A, B, C, D = range(1, 7)
A1, A2, A3, A4, B1, B2, B3, B4 = range(7, 15)


def hand_drawn() -> Tree:
    """A node p with 4 children, two of which have 4 children themselves (+ ends correct, - wrong; rows in brackets).

    root (0)
    └── g (1)           2 own rollouts, 1 correct
        └── p (2)       m=4
            ├── a (3)
            │   ├── a1 + (7)
            │   ├── a2 + (8)
            │   ├── a3 + (9)
            │   └── a4 - (10)
            ├── b (4)
            │   ├── b1 + (11)
            │   ├── b2 - (12)
            │   ├── b3 - (13)
            │   └── b4 - (14)
            ├── c - (5)
            └── d + (6)
    """
    builder = TreeBuilder()
    ends = {"a1": 1, "a2": 1, "a3": 1, "a4": 0, "b1": 1, "b2": 0, "b3": 0, "b4": 0, "c": 0, "d": 1}
    parents = {"g": 0, "p": G} | dict.fromkeys("abcd", P)
    parents |= dict.fromkeys(("a1", "a2", "a3", "a4"), A) | dict.fromkeys(("b1", "b2", "b3", "b4"), B)
    for tokens, (name, parent) in enumerate(parents.items(), start=1):
        verdict = Verdict(ends[name]) if name in ends else None
        builder.add(
            parent,
            name + "\n",
            token_count=tokens,
            logprob=-float(tokens),
            finish=Finish.OPEN if verdict is None else Finish.ANSWERED,
            answer="" if verdict is None else "7",
            verdict=-1 if verdict is None else verdict,
        )
    builder.multiplicity[P] = 4.0
    builder.rollouts[G], builder.rollouts_correct[G] = 2, 1
    builder.visits[0], builder.value_sum[0] = 12, 6.0
    return builder.freeze()
