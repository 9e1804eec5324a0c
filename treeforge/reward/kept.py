"""Scores of solutions, kept in the run folder by the model's identity, so that no solution is scored twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from treeforge.hashing import digest, encode_text
from treeforge.reward.base import RewardModel, SolutionScores, score_solutions
from treeforge.store.files import atomic_file
from treeforge.store.parquet import read_table, write_table
from treeforge.store.scores import SCORES, SCORES_FOLDER, scores_from_table, scores_table

Question = str
Steps = Sequence[str]


class KeptScores:
    """One model's scores in one run folder: a file a part of the problems, each written whole when it is known."""

    def __init__(self, run: Path, model: RewardModel) -> None:
        self._model = model
        self._folder = run / SCORES_FOLDER / digest(encode_text(model.identity)).hex()

    def of(self, part: int, solutions: Sequence[tuple[Question, Steps]]) -> list[SolutionScores]:
        """The scores of a part's solutions, in their order; the model is asked for those that the file lacks.

        Raises `StorageError` for a damaged file, `ConfigError` where the model gives no chances.
        """
        file = self._folder / f"part-{part:05d}.parquet"
        known = scores_from_table(read_table(file, SCORES)) if file.exists() else {}
        keys = [digest(*map(encode_text, (question, *steps))) for question, steps in solutions]
        missing = {key: at for at, key in enumerate(keys) if key not in known}
        if missing:
            found = score_solutions(self._model, [solutions[at] for at in missing.values()])
            known |= {key: (new.single, new.pairs) for key, new in zip(missing, found, strict=True)}
            self._describe()
            write_table(scores_table(known), file)
        return [SolutionScores(*known[key]) for key in keys]

    def _describe(self) -> None:
        """Say for a person whose scores these are."""
        file = self._folder / "model.json"
        if not file.exists():
            model = self._model
            about = {"name": model.name, "identity": model.identity, "task": model.task}
            with atomic_file(file) as stream:
                stream.write(json.dumps(about, indent=2).encode() + b"\n")
