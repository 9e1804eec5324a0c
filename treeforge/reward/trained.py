"""A reward model that `treeforge train` made, on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treeforge.errors import TrainingError
from treeforge.hashing import digest, encode_text, file_sha256
from treeforge.reward.base import Window
from treeforge.reward.encode import padded
from treeforge.reward.heads import chances, is_memory, need_transformers, open_judge
from treeforge.reward.saved import Saved
from treeforge.reward.score import LoadedModel

_TOKENS = {"cuda": 65_536, "mps": 8_192, "cpu": 4_096}
"""Tokens of one forward pass, padding included, where no number of rows is asked for."""
_DECIDES = ("*.safetensors", "*.bin", "config.json", "reward.json", "tokenizer*", "*.model", "vocab*", "merges.txt")
"""Files that determine the scores."""


class TrainedModel(LoadedModel):
    """The model in `folder`, in bfloat16 on GPUs that have it, else in float32.

    Rows are sorted by length and run in batches of like ones. Where memory does not suffice, batches are halved from
    then on; `TrainingError` where not even one row fits.
    """

    def __init__(self, folder: Path, saved: Saved, *, batch: int | None = None) -> None:
        """`batch`: rows of one forward pass; None: as many as have `_TOKENS` together."""
        need_transformers()
        import torch

        self.name, self.task = folder.resolve().name, saved.task
        self._folder, self._batch = folder, batch
        self._judge = open_judge(str(folder), saved.head, saved.window)
        cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
        self._device = "cuda" if cuda else "mps" if mps else "cpu"
        dtype = torch.bfloat16 if cuda and torch.cuda.is_bf16_supported() else torch.float32
        self._judge.model.to(device=self._device, dtype=dtype).eval()
        self._tokens = _TOKENS[self._device]

    @cached_property
    def identity(self) -> str:
        """Digest of the folder's files that determine the scores."""
        files = sorted({path for pattern in _DECIDES for path in self._folder.glob(pattern)})
        return digest(*(encode_text(part) for path in files for part in (path.name, file_sha256(path)))).hex()

    def probabilities(self, windows: Sequence[Window]) -> NDArray[np.float64]:
        """See `RewardModel`. Windows that are longer than the model's are cut, and counted in `truncated`."""
        encoded = self._judge.encoder.encode(windows)
        self.truncated += sum(cut for _, cut in encoded)
        rows = [ids for ids, _ in encoded]
        found = np.zeros(len(rows))
        # The longest first: if memory does not suffice, it shows at once.
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
        while order:
            part = order[: self._batch or max(1, self._tokens // len(rows[order[0]]))]
            chance = self._forward([rows[row] for row in part])
            if chance is None:
                self._halve(len(part), len(rows[part[0]]))
                continue
            found[part] = chance
            del order[: len(part)]
        return found

    def _halve(self, rows: int, longest: int) -> None:
        """Take half as many at once from now on."""
        if rows == 1:
            raise TrainingError(
                f"memory does not suffice for one window of {longest:,} tokens. Free some, score on a machine with "
                "more, or train the model with a shorter --window"
            )
        if self._batch is not None:
            self._batch = max(1, rows // 2)
        else:
            self._tokens = rows // 2 * longest

    def _forward(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float64] | None:
        """float64[rows]: their chances; None where memory does not suffice."""
        import torch

        try:
            with torch.inference_mode():
                batch = {name: tensor.to(self._device) for name, tensor in padded(rows, self._judge.pad).items()}
                outputs = self._judge.model(**batch, **self._judge.more_inputs)
                return chances(self._judge.logits(outputs).cpu().numpy())
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_memory(error):
                raise
        if self._device == "cuda":
            torch.cuda.empty_cache()
        return None
