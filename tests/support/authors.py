"""The HRM authors' tree class, as their code defines and pickles it: for tests that read such pickles."""

from __future__ import annotations

from typing import Any


class Node:
    def __init__(self, parent: Any = None, height: int = 0, question: str = "") -> None:
        self.previous_answer: list[str] = []
        self.parent = parent
        self.number_of_children = 5
        self.children: list[Node] = []
        self.height = height
        self.question = question
        self.contain_answer = False
        self.answer: str | None = None
        self.score = -1
        self.is_correct = False
        self.should_stop = False
        self.is_leaf_node = False

    def grow(self, text: str, *, answer: str | None = None, correct: bool = False, stop: bool = False) -> Node:
        child = Node(self, self.height + 1, self.question)
        child.previous_answer = [*self.previous_answer, text]
        child.contain_answer, child.answer, child.is_correct = answer is not None, answer, correct
        child.should_stop = stop
        self.children.append(child)
        return child
