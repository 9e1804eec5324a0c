"""A tree under growth: makes the requests of one tree and turns samples into nodes, rollouts and verdicts.

Everything here is a function of (recipe, problem, samples): no clock, no randomness of its own, no IO.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from treeforge.answers import states_answer
from treeforge.config import Recipe
from treeforge.given import GivenSolution
from treeforge.hashing import chain, derive_seed, digest, digest_object, encode_text, request_digest
from treeforge.policy.steps import ends_thinking, parse, starts_thinking, step_costs
from treeforge.problem import Problem
from treeforge.sample import Mode, Request, Sample
from treeforge.tree import Finish, Rollout, TreeBuilder
from treeforge.verdict import NO_VERDICT, Judge, Verdict

_NAN = math.nan
_OPEN, _STOP, _ANSWERED = int(Finish.OPEN), int(Finish.STOP), int(Finish.ANSWERED)
_TRUNCATED, _ERROR = int(Finish.TRUNCATED), int(Finish.ERROR)
_CORRECT, _UNDECIDED, _NO_ANSWER = int(Verdict.CORRECT), int(Verdict.UNDECIDED), int(Verdict.NO_ANSWER)

Ending = tuple[int, str, int]
"""How a trajectory ended: (finish, answer, verdict)."""
_GOES_ON: Ending = (_OPEN, "", NO_VERDICT)


def request_base(recipe: Recipe, identity: dict[str, object]) -> bytes:
    """Digest of what all requests of a run share: policy identity, sampling, step format and run seed."""
    return digest_object([identity, recipe.sampling, recipe.steps, recipe.seed])


class GrowingTree:
    """One problem's tree while it grows. Strategies call `request` and `absorb`."""

    __slots__ = (
        "_endings",
        "_thinking",
        "base",
        "builder",
        "errors",
        "given",
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

    def __init__(
        self,
        number: int,
        problem: Problem,
        recipe: Recipe,
        judge: Judge,
        base: bytes,
        given: Sequence[GivenSolution] = (),
    ) -> None:
        self.number = number
        self.problem = problem
        self.recipe = recipe
        self.steps = recipe.steps
        self.seed = recipe.seed
        self.merge = recipe.search.merge_duplicates
        self.max_steps = recipe.search.max_steps
        self.judge = judge
        self.base = base
        self.given = given
        """Solutions to start from, with `search.given`."""
        self.builder = TreeBuilder()
        self.rollouts: list[Rollout] = []
        """The rollouts table's rows, in the order in which they were applied."""
        self.samples = 0
        """Completions so far, errors included."""
        self.tokens = 0
        """Tokens sampled so far."""
        self._endings: dict[tuple[str, int], Ending] = {}
        """How a trajectory ended, by its last step and how the model finished it."""
        self._thinking: set[int] = {0} if starts_thinking(recipe.steps) else set()
        """Nodes whose prefix ends inside a thinking section."""
        self.errors: list[str] = []
        """Messages of the engine errors so far."""
        root = digest(encode_text(problem.problem_id), encode_text(problem.question))
        self.node_digests: dict[int, bytes] = {0: root}

    def request(self, node: int, mode: Mode, n: int, index: int, purpose: str = "") -> Request:
        """Ask for `n` samples from `node`.

        `index` counts the requests of this node and `purpose` (the mode, unless given), so that each has its own seed.
        """
        prefix = self.node_digests.get(node) or self._digest(node)
        purpose = purpose or mode
        seed = derive_seed(self.seed, prefix, purpose, index)
        digest = request_digest(self.base, prefix, purpose, index, n)
        return Request(self.problem, self.builder.prefix(node), n, mode, seed, digest, self.number)

    def _digest(self, node: int) -> bytes:
        builder, digests = self.builder, self.node_digests
        path: list[int] = []
        while node not in digests:
            path.append(node)
            node = builder.parent[node]
        found = digests[node]
        for row in reversed(path):
            text, occurrence = builder.text[row], 0
            if not self.merge:
                siblings = builder.children[builder.parent[row]] or ()
                occurrence = sum(1 for s in siblings if s < row and builder.text[s] == text)
            found = digests[row] = chain(found, text, occurrence)
        return found

    def absorb(
        self, node: int, samples: Sequence[Sample], *, as_rollouts: bool = False, in_flight: int = 0
    ) -> tuple[int, int, list[int]]:
        """Turn the samples of one request from `node` into the tree.

        The first step of each sample becomes a child of `node` (or raises the multiplicity of an identical one), what
        follows it an own rollout of that child; with `as_rollouts` the whole sample is an own rollout of `node`.
        Judged outcomes are backed up to the root (visits, value_sum), in place of the `in_flight` visits that stand
        there as virtual loss.

        Returns (judged outcomes, correct ones, new children).
        """
        # The engine's hottest loop: what happens with nearly every sample is done here, the rest in methods.
        builder, step_format, endings, keep = self.builder, self.steps, self._endings, self.rollouts.append
        visits, value_sum, finishes = builder.visits, builder.value_sum, builder.finish
        room, thinking = self.max_steps - builder.depth[node], node in self._thinking
        known = {} if as_rollouts or not self.merge else builder.child_of.setdefault(node, {})
        judged = correct = tokens = 0
        new: list[int] = []
        for sample in samples:
            sampled = sample.tokens
            tokens += sampled
            steps, finish = parse(sample, step_format, room, thinking=thinking)
            if finish == _ERROR:
                self._error(node, sample)
                continue
            ending = (endings.get((steps[-1], finish)) if steps else None) or self._ending(steps, finish)
            finish, answer, verdict = ending
            row, rest, ended = node, sample.logprob, False
            if steps and not as_rollouts:
                first, *steps = steps
                if len(sample.step_tokens) > len(steps) < len(sample.step_logprobs):
                    cost, logprob = sample.step_tokens[0], sample.step_logprobs[0]
                else:
                    costs, logprobs = step_costs(sample, [first, *steps])
                    cost, logprob = costs[0], logprobs[0]
                ended = not steps and self.ends(first, finish)
                found = known.get(first)
                if found is not None and finishes[found] != (finish if ended else _OPEN):
                    found = self._sibling(node, first, finish if ended else _OPEN)
                if found is None:
                    row = self._add(node, first, cost, logprob, ending if ended else _GOES_ON)
                    new.append(row)
                else:
                    row = found
                    builder.multiplicity[row] += 1.0
                sampled = sampled - cost if sampled > cost else 0
                rest = None if rest is None else rest - logprob
            if row == node or not (ended or finish == _OPEN):
                keep(Rollout(row, tuple(steps), answer, verdict, finish, sampled, _NAN if rest is None else rest))
                self._count(row, finish, verdict)
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
        if judged or in_flight:
            self._back_up(node, judged - in_flight, correct)
        return judged, correct, new

    def _error(self, node: int, sample: Sample) -> None:
        self.errors.append(sample.text)
        self.rollouts.append(Rollout(node, (), sample.text, NO_VERDICT, _ERROR, sample.tokens, _NAN))

    def _ending(self, steps: list[str], finish: int) -> Ending:
        """How a trajectory with these last steps ended; a stop with an answer is ANSWERED."""
        if finish == _OPEN:
            return _GOES_ON
        if finish == _TRUNCATED or not steps:
            return finish, "", _NO_ANSWER
        key = (steps[-1], finish)
        ending = self._endings.get(key)
        if ending is None:  # a tree ends in few different ways, and judges are deterministic
            judgement = self.judge.judge(self.problem, steps[-1])
            verdict = int(judgement.verdict)
            answered = finish == _STOP and verdict != _NO_ANSWER
            ending = self._endings[key] = (_ANSWERED if answered else finish, judgement.answer, verdict)
        return ending

    def absorb_solutions(self, samples: Sequence[Sample]) -> None:
        """Turn complete solutions, sampled at the root, into the tree: every step becomes a node, a path a solution.

        Identical first parts are one path (where duplicates are merged), whose nodes stand for several samples.
        """
        builder = self.builder
        for sample in samples:
            self.samples += 1
            self.tokens += sample.tokens
            steps, finish = parse(sample, self.steps, self.max_steps, thinking=0 in self._thinking)
            if finish == _ERROR:
                self._error(0, sample)
                continue
            ending = self._ending(steps, finish)
            finish, answer, verdict = ending
            tokens, logprobs = step_costs(sample, steps)
            row, last = 0, len(steps) - 1
            for i, step in enumerate(steps):
                ends = i == last and self.ends(step, finish)
                found = self._find(row, step, finish if ends else _OPEN)
                if found is not None:
                    row = found
                    builder.multiplicity[row] += 1.0
                else:
                    row = self._add(row, step, tokens[i], logprobs[i], ending if ends else _GOES_ON)
            if builder.finish[row] == _OPEN:  # it stopped right after a step, or at once
                self.rollouts.append(Rollout(row, (), answer, verdict, finish, 0 if steps else sample.tokens, 0.0))
                self._count(row, finish, verdict)
            if verdict != _UNDECIDED:
                self._back_up(row, 1, int(verdict == _CORRECT))

    def ending(self, node: int, step: str) -> Ending | None:
        """How a solution ends with this step after `node`; None where it does not, or inside a thinking section.

        It does where the step is right, or plainly states an answer: a judge may take any last words for one.
        """
        if self.steps.think_close and ends_thinking(step, self.steps, thinking=node in self._thinking):
            return None
        ending = self._ending([step], _STOP)
        finish, _, verdict = ending
        plainly = any(marker in step for marker in self.steps.answer_markers) or states_answer(step)
        return ending if finish == _ANSWERED and (plainly or verdict == _CORRECT) else None

    def prefix_node(self, node: int, step: str, tokens: int, logprob: float, ending: Ending | None = None) -> int:
        """The child of `node` for the next step of an own rollout or given solution: found, or with multiplicity 0.

        A rollout stays an own rollout of the node that it started from, and a given solution is no sample, so that the
        child stands for no sample beside it. `ending` is the whole's, where the step is its last one.
        """
        found = self._find(node, step, ending[0] if ending else _OPEN)
        if found is not None:
            return found
        row = self._add(node, step, tokens, logprob, ending or _GOES_ON)
        self.builder.multiplicity[row] = 0.0
        return row

    def outcomes(self, samples: Sequence[Sample]) -> tuple[int, int, int]:
        """(right, wrong, undecided) completions from the root among `samples`; engine errors are none of them."""
        right = wrong = undecided = 0
        for sample in samples:
            steps, finish = parse(sample, self.steps, self.max_steps, thinking=0 in self._thinking)
            if finish != _ERROR:
                verdict = self._ending(steps, finish)[2]
                right += verdict == _CORRECT
                undecided += verdict == _UNDECIDED
                wrong += verdict not in (_CORRECT, _UNDECIDED)
        return right, wrong, undecided

    def _back_up(self, node: int, judged: int, correct: int) -> None:
        builder = self.builder
        visits, value_sum, parent = builder.visits, builder.value_sum, builder.parent
        while node >= 0:
            visits[node] += judged
            value_sum[node] += correct
            node = parent[node]

    def ends(self, step: str, finish: int) -> bool:
        """Whether the last step of a completion ends its trajectory in the tree.

        A step that ended at its delimiter is open: other samples go on from it. That this one did not is a rollout.
        """
        return finish == _ANSWERED or (finish != _OPEN and not step.endswith(self.steps.delimiter))

    def _find(self, node: int, text: str, finish: int) -> int | None:
        """The child with this text and this ending, where duplicates are merged."""
        if not self.merge:
            return None
        row = self.builder.child_of.get(node, {}).get(text)
        if row is not None and self.builder.finish[row] != finish:
            return self._sibling(node, text, finish)
        return row

    def _add(self, node: int, text: str, tokens: int, logprob: float, ending: Ending) -> int:
        """Add a child; `ending` where it ends a trajectory, else `_GOES_ON`."""
        finish, answer, verdict = ending
        row = self.builder.add(
            node, text, token_count=tokens, logprob=logprob, finish=finish, answer=answer, verdict=verdict
        )
        if finish == _OPEN:
            inside, opens = node in self._thinking, self.steps.think_open
            if (inside or (opens and opens in text)) and ends_thinking(text, self.steps, thinking=inside):
                self._thinking.add(row)
        return row

    def _sibling(self, node: int, text: str, finish: int) -> int | None:
        """The child with this text *and* this ending, where the first one with the text ended otherwise."""
        builder = self.builder
        for child in builder.children[node] or ():
            if builder.text[child] == text and builder.finish[child] == finish:
                return child
        return None

    def _count(self, row: int, finish: int, verdict: int) -> None:
        """Count an own rollout of a node."""
        builder = self.builder
        builder.rollouts[row] += 1
        if verdict == _CORRECT:
            builder.rollouts_correct[row] += 1
        elif verdict == _UNDECIDED:
            builder.rollouts_undecided[row] += 1
        elif finish == _TRUNCATED:
            builder.rollouts_truncated[row] += 1
