"""A tree under growth: makes the requests of one tree and turns samples into nodes, rollouts and verdicts.

Everything here is a function of (recipe, problem, samples): no clock, no randomness of its own, no IO.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from treeforge.config import Recipe
from treeforge.hashing import chain, derive_seed, digest, digest_object, encode_text, request_digest
from treeforge.policy.steps import ends_thinking, parse, starts_thinking
from treeforge.problem import Problem
from treeforge.sample import Mode, Request, Sample
from treeforge.tree import Finish, Rollout, TreeBuilder
from treeforge.verdict import NO_VERDICT, Judge, Verdict

_NAN = math.nan
_OPEN, _STOP, _ANSWERED = int(Finish.OPEN), int(Finish.STOP), int(Finish.ANSWERED)
_TRUNCATED, _ERROR = int(Finish.TRUNCATED), int(Finish.ERROR)
_CORRECT, _UNDECIDED, _NO_ANSWER = int(Verdict.CORRECT), int(Verdict.UNDECIDED), int(Verdict.NO_ANSWER)


def request_base(recipe: Recipe, identity: dict[str, object]) -> bytes:
    """Digest of what all requests of a run share: policy identity, sampling, step format and run seed."""
    return digest_object([identity, recipe.sampling, recipe.steps, recipe.seed])


class GrowingTree:
    """One problem's tree while it grows. Strategies call `request` and `absorb`."""

    __slots__ = (
        "_thinking",
        "_verdicts",
        "base",
        "builder",
        "errors",
        "judge",
        "max_steps",
        "merge",
        "node_digests",
        "number",
        "problem",
        "recipe",
        "rollouts",
        "samples",
        "seed",
        "steps",
        "tokens",
    )

    def __init__(self, number: int, problem: Problem, recipe: Recipe, judge: Judge, base: bytes) -> None:
        self.number = number
        self.problem = problem
        self.recipe = recipe
        self.steps = recipe.steps
        self.seed = recipe.seed
        self.merge = recipe.search.merge_duplicates
        self.max_steps = recipe.search.max_steps
        self.judge = judge
        self.base = base
        self.builder = TreeBuilder()
        self.rollouts: list[Rollout] = []
        """The rollouts table's rows, in the order in which they were applied."""
        self.samples = 0
        """Completions so far, errors included."""
        self.tokens = 0
        """Tokens sampled so far."""
        self._verdicts: dict[str, tuple[int, str]] = {}
        self._thinking: set[int] = {0} if starts_thinking(recipe.steps) else set()
        """Nodes whose prefix ends inside a thinking section."""
        self.errors: list[str] = []
        """Messages of the engine errors so far."""
        root = digest(encode_text(problem.problem_id), encode_text(problem.question))
        self.node_digests: dict[int, bytes] = {0: root}

    def request(self, node: int, mode: Mode, n: int, index: int) -> Request:
        """Ask for `n` samples from `node`; `index` counts such requests of this node, so that each has its own seed.

        The parent of `node` must have been asked from before (digests are chained from it), which holds for every
        strategy that grows nodes by `absorb`.
        """
        prefix = self._digest(node)
        return Request(
            problem=self.problem,
            prefix=self.builder.prefix(node),
            n=n,
            mode=mode,
            seed=derive_seed(self.seed, prefix, mode, index),
            digest=request_digest(self.base, prefix, mode, index, n),
            tree=self.number,
        )

    def _digest(self, node: int) -> bytes:
        found = self.node_digests.get(node)
        if found is None:
            builder = self.builder
            parent, text = builder.parent[node], builder.text[node]
            occurrence = 0
            if not self.merge:
                siblings = builder.children[parent] or ()
                occurrence = sum(1 for s in siblings if s < node and builder.text[s] == text)
            found = self.node_digests[node] = chain(self._digest(parent), text, occurrence)
        return found

    def absorb(self, node: int, samples: Sequence[Sample], *, as_rollouts: bool = False) -> tuple[int, int, list[int]]:
        """Turn the samples of one request from `node` into the tree.

        The first step of each sample becomes a child of `node` (or raises the multiplicity of an identical one), what
        follows it an own rollout of that child; with `as_rollouts` the whole sample is an own rollout of `node`.
        Judged outcomes are backed up to the root (visits, value_sum).

        Returns (judged outcomes, correct ones, new children).
        """
        builder, step_format, rollouts = self.builder, self.steps, self.rollouts
        room = self.max_steps - builder.depth[node]
        visits, value_sum = builder.visits, builder.value_sum
        judged = correct = tokens = 0
        new: list[int] = []
        thinking = node in self._thinking
        for sample in samples:
            tokens += sample.tokens
            steps, finish = parse(sample, step_format, room, thinking=thinking)
            if finish == _ERROR:
                self.errors.append(sample.text)
                rollouts.append(Rollout(node, (), sample.text, NO_VERDICT, _ERROR, sample.tokens, _NAN))
                continue
            verdict, answer = NO_VERDICT, ""
            if finish != _OPEN:
                verdict, answer, finish = self._verdict(steps, finish)
            row = node
            if as_rollouts or not steps:
                logprob = _NAN if sample.logprob is None else sample.logprob
                self._own_rollout(node, steps, answer, verdict, finish, sample.tokens, logprob)
            else:
                row = self._child(node, sample, steps, finish, answer, verdict, new)
            if finish != _OPEN and verdict != _UNDECIDED:
                judged += 1
                if row != node:
                    visits[row] += 1
                if verdict == _CORRECT:
                    correct += 1
                    if row != node:
                        value_sum[row] += 1.0
        self.samples += len(samples)
        self.tokens += tokens
        if judged:
            parent = builder.parent
            up = node
            while up >= 0:
                visits[up] += judged
                value_sum[up] += correct
                up = parent[up]
        return judged, correct, new

    def _verdict(self, steps: list[str], finish: int) -> tuple[int, str, int]:
        """(verdict, answer, finish) of a trajectory that ended with `steps`; a stop with an answer is ANSWERED."""
        if finish == _TRUNCATED or not steps:
            return _NO_ANSWER, "", finish
        last = steps[-1]
        known = self._verdicts.get(last)
        if known is None:  # a tree ends in few different ways, and judges are deterministic
            judgement = self.judge.judge(self.problem, last)
            known = self._verdicts[last] = int(judgement.verdict), judgement.answer
        verdict, answer = known
        if finish == _STOP and verdict != _NO_ANSWER:
            finish = _ANSWERED
        return verdict, answer, finish

    def _child(
        self, node: int, sample: Sample, steps: list[str], finish: int, answer: str, verdict: int, new: list[int]
    ) -> int:
        """Find or add the child for the first step, which gets what follows as its own rollout; the child's row."""
        builder = self.builder
        first = steps[0]
        if len(sample.step_tokens) >= len(steps) <= len(sample.step_logprobs):
            tokens, logprob = sample.step_tokens[0], sample.step_logprobs[0]
        else:
            tokens, logprob = _first_step_cost(sample, steps)
        # A step that ended at its delimiter is open: other samples go on from it. That this one did not is a rollout.
        ends = len(steps) == 1 and (
            finish == _ANSWERED or (finish != _OPEN and not first.endswith(self.steps.delimiter))
        )
        own_finish = finish if ends else _OPEN
        row = builder.child_of.get((node, first)) if self.merge else None
        if row is not None and builder.finish[row] != own_finish:
            row = self._sibling(node, first, own_finish)
        if row is not None:
            builder.multiplicity[row] += 1.0
        elif ends:
            row = builder.add(
                node, first, token_count=tokens, logprob=logprob, finish=finish, answer=answer, verdict=verdict
            )
            new.append(row)
        else:
            row = builder.add(node, first, token_count=tokens, logprob=logprob)
            new.append(row)
            self._note_thinking(node, row, first)
        if finish != _OPEN and not ends:
            rest = _NAN if sample.logprob is None else sample.logprob - logprob
            self._own_rollout(row, steps[1:], answer, verdict, finish, max(sample.tokens - tokens, 0), rest)
        return row

    def _note_thinking(self, node: int, row: int, text: str) -> None:
        inside, opens = node in self._thinking, self.steps.think_open
        if (inside or (opens and opens in text)) and ends_thinking(text, self.steps, thinking=inside):
            self._thinking.add(row)

    def _sibling(self, node: int, text: str, finish: int) -> int | None:
        """The child with this text *and* this ending, where the first one with the text ended otherwise."""
        builder = self.builder
        for child in builder.children[node] or ():
            if builder.text[child] == text and builder.finish[child] == finish:
                return child
        return None

    def _own_rollout(
        self, row: int, steps: list[str], answer: str, verdict: int, finish: int, tokens: int, logprob: float
    ) -> None:
        builder = self.builder
        self.rollouts.append(Rollout(row, tuple(steps), answer, verdict, finish, tokens, logprob))
        builder.rollouts[row] += 1
        if verdict == _CORRECT:
            builder.rollouts_correct[row] += 1
        elif verdict == _UNDECIDED:
            builder.rollouts_undecided[row] += 1
        elif finish == _TRUNCATED:
            builder.rollouts_truncated[row] += 1


def _first_step_cost(sample: Sample, steps: list[str]) -> tuple[int, float]:
    """Tokens and log-probability of a sample's first step; tokens by share of characters where nothing says more."""
    if len(sample.step_tokens) >= len(steps):
        tokens = sample.step_tokens[0]
    elif len(steps) == 1:
        tokens = sample.tokens
    else:
        tokens = round(sample.tokens * len(steps[0]) / max(sum(map(len, steps)), 1))
    if len(sample.step_logprobs) >= len(steps):
        logprob = sample.step_logprobs[0]
    elif len(steps) == 1 and sample.logprob is not None:
        logprob = sample.logprob
    else:
        logprob = _NAN
    return tokens, logprob
