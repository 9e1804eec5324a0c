"""Reward models that are plain functions of a window's text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from treeforge.reward.base import Task, Window


class FunctionModel:
    """Gives each window the chance that `chance` says, and counts the windows that it was asked."""

    def __init__(
        self, chance: Callable[[Window], float], task: Task = "prm", *, name: str = "model", identity: str = ""
    ) -> None:
        self.chance, self.name, self.identity, self._task = chance, name, identity or name, task
        self.asked = 0

    @property
    def task(self) -> Task:
        return self._task

    def probabilities(self, windows: Sequence[Window]) -> NDArray[np.float64]:
        self.asked += len(windows)
        return np.array([self.chance(window) for window in windows], dtype=np.float64)
