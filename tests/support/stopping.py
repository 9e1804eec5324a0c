"""Runs that stop in the middle of a tree, whatever the machine's speed."""

from pathlib import Path
from typing import Any

import pytest
from support.runs import problems, scripted_config

import treeforge as tf
from treeforge.config import RunConfig
from treeforge.errors import PolicyUnavailableError
from treeforge.sample import Request, Sample

SIMULATIONS: dict[str, Any] = {"budget": {"simulations": 24}}


class Stops(tf.ScriptedPolicy):
    """Answers so many requests, then none."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.left = answers

    def sample_now(self, request: Request) -> tuple[Sample, ...] | None:
        self.left -= 1
        if self.left < 0:
            raise PolicyUnavailableError("out of answers")
        return super().sample_now(request)


def stopped(path: Path, answers: int, config: RunConfig | None = None, **parts: Any) -> Path:
    """A run of three problems that stopped after so many answers."""
    with pytest.raises(PolicyUnavailableError):
        tf.run(problems(3), path, config or scripted_config(**SIMULATIONS), policy=Stops(answers), **parts)
    return path
