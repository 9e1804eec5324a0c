"""The loss of self-training and its reference: the policy as it was, beside the training or cached by its likeliest
tokens. Imports torch: only what trains imports this module.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from treeforge.reward.encode import padded
from treeforge.reward.settings import PolicyTraining
from treeforge.reward.trainer import BucketTrainer, Progress, finite


def batch(rows: list[dict[str, Any]], pad: int) -> dict[str, Any]:
    """A batch of the Trainer: ids padded on the left; `labels`, -100 but for the solution's tokens; where rows stand
    in the reference's cache; and of how many last tokens logits are needed."""
    found = padded([row["input_ids"] for row in rows], pad)
    longest = max(row["solution"] for row in rows)
    labels = found["input_ids"][:, -longest:].clone()
    for place, row in enumerate(rows):
        labels[place, : longest - row["solution"]] = -100
    places = [row["place"] for row in rows]
    return {**found, "labels": labels, "logits_to_keep": longest + 1, "places": places}


class Reference:
    """The reference policy's next-token distributions.

    Of one of three kinds: none (lambda is 0); a frozen model (with LoRA: the policy without its adapter); or, per
    token of a solution, its `top_k` likeliest next tokens with their log-probabilities and the rest of the mass as one
    further outcome, computed once into files of the training's folder. The KL divergence of the latter is a lower
    bound of the full one.
    """

    def __init__(self) -> None:
        self._model: Any = None
        self._adapter = False
        self._cached: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._files: list[Path] = []

    @classmethod
    def of(cls, model: Any, config: PolicyTraining, out: Path, datasets: list[Any], report: Progress) -> Reference:
        """The reference that `config` asks for, of the base `model`; `datasets`: all rows."""
        found = cls()
        if not config.kl:
            return found
        if config.top_k:
            report(f"computing the reference's {config.top_k} likeliest tokens")
            for number, rows in enumerate(datasets):
                found._cache(model, rows, config, out / f"reference-{number}")
        elif config.lora:
            found._adapter = True
        else:
            import copy

            found._model = copy.deepcopy(model).eval().requires_grad_(False)
        return found

    def divergence(self, policy: Any, inputs: dict[str, Any], places: list[tuple[int, int]], logits: Any) -> Any:
        """float[rows, tokens]: KL(reference || policy) of each next token; None without a reference.

        `logits`: the policy's, float[rows, tokens, vocabulary].
        """
        ours = functional.log_softmax(logits.float(), dim=-1)
        if self._cached:
            return self._of_cache(ours, places)
        if self._model is None and not self._adapter:
            return None
        model = policy if self._model is None else self._model.to(ours.device)
        with torch.no_grad(), policy.disable_adapter() if self._adapter else nullcontext():
            theirs = functional.log_softmax(model(**inputs).logits[:, :-1].float(), dim=-1)
        return (theirs.exp() * (theirs - ours)).sum(dim=-1)

    def _of_cache(self, ours: Any, places: list[tuple[int, int]]) -> Any:
        tokens = ours.shape[1]
        out = []
        for row, place in enumerate(places):
            ids, logs = (torch.from_numpy(np.array(part)).to(ours.device) for part in self._cached[place])
            mine = ours[row, tokens - len(ids) :].gather(1, ids.long())
            terms = (logs.exp() * (logs - mine)).sum(dim=1)
            rest, my_rest = _rest(logs), _rest(mine)
            terms = terms + rest.exp() * (rest - my_rest)
            out.append(functional.pad(terms, (tokens - len(ids), 0)))
        return torch.stack(out)

    def _cache(self, model: Any, rows: Any, config: PolicyTraining, stem: Path) -> None:
        """Fill the files of `rows`, or take them as they are where they are whole."""
        lengths = [solution for _, solution in rows.rows]
        width = min(config.top_k, model.config.vocab_size)
        shape = (sum(lengths), width)
        paths = [stem.with_suffix(suffix) for suffix in (".ids.npy", ".logs.npy")]
        self._files += paths
        if not all(path.exists() for path in paths):
            parts = [path.with_suffix(".partial.npy") for path in paths]
            kinds = (np.int32, np.float32)
            ids, logs = (
                np.lib.format.open_memmap(part, mode="w+", dtype=kind, shape=shape)
                for part, kind in zip(parts, kinds, strict=True)
            )
            at = 0
            model.eval()
            for tokens, solution in rows.rows:
                with torch.inference_mode():
                    given = torch.tensor([tokens], device=model.device)
                    logits = model(input_ids=given, logits_to_keep=solution + 1).logits[0, :-1]
                    best = functional.log_softmax(logits.float(), dim=-1).topk(width)
                ids[at : at + solution] = best.indices.cpu().numpy()
                logs[at : at + solution] = best.values.cpu().numpy()
                at += solution
            ids.flush()
            logs.flush()
            for part, path in zip(parts, paths, strict=True):
                part.replace(path)
        ids, logs = (np.load(path, mmap_mode="r") for path in paths)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(int).tolist()
        for place, (start, end) in enumerate(itertools.pairwise(starts)):
            self._cached[id(rows), place] = (ids[start:end], logs[start:end])

    def remove(self) -> None:
        """Remove the cache's files."""
        self._cached.clear()
        for path in self._files:
            path.unlink(missing_ok=True)


def _rest(logs: Any) -> Any:
    """float[tokens]: the logarithm of the mass that these outcomes leave."""
    left = (1 - logs.exp().sum(dim=1)).clamp(min=1e-6)
    return left.log()


class PolicyTrainer(BucketTrainer):
    """Language modelling on the solutions' tokens + kl * log(1 + mean KL of a token)."""

    def __init__(self, *, reference: Reference, kl: float, **more: Any) -> None:
        super().__init__(**more)
        self._reference, self._kl = reference, kl

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of a batch, as the Trainer asks for it: a part of the step's where batches are accumulated."""
        inputs = dict(inputs)
        labels, places = inputs.pop("labels"), inputs.pop("places")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1]
        inside = labels != -100
        tokens = inside.sum()
        each = functional.cross_entropy(logits.float().transpose(1, 2), labels, reduction="none", ignore_index=-100)
        share = 1.0 if num_items_in_batch is None else tokens / num_items_in_batch
        loss = each.sum() / tokens
        if self._kl:
            divergence = self._reference.divergence(self.accelerator.unwrap_model(model), inputs, places, logits)
            mean = (divergence * inside).sum() / tokens
            loss = loss + self._kl * torch.log1p(mean.clamp(min=0))
        loss = finite(loss * share)
        return (loss, outputs) if return_outputs else loss

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Any, Any, Any]:
        """The loss alone: logits over a vocabulary are not kept."""
        places = inputs["places"]
        inputs = {**self._prepare_inputs({k: v for k, v in inputs.items() if k != "places"}), "places": places}
        with torch.no_grad():
            return self.compute_loss(model, inputs).detach().mean(), None, None
