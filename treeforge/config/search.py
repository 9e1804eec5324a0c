"""How trees grow, and when they stop."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from treeforge.config.base import Config, at_most_one, not_negative, positive


class OmegaConfig(Config, frozen=True, kw_only=True):
    """Which wrong rollout `omega` searches next (OmegaPRM, arXiv 2406.06592, Section 3.3); defaults are the paper's."""

    alpha: float = 0.5
    """Q(s, r) = alpha^(1 - MC(s)) · beta^(len(r)/length): how much a state that the policy mostly masters is
    preferred."""
    beta: float = 0.9
    """How much a short rollout is preferred."""
    length: int = 500
    """L, in tokens."""
    exploration: float = 0.125
    """c_puct in U(s) = c_puct · sqrt(Σ N) / (1 + N(s))."""
    search_right: bool = False
    """With `search.given`: look for a first error in solutions whose answer is right (or undecided), too. The paper
    leaves them."""
    further: bool = False
    """With `search.given`: go on with the policy's own wrong completions once the given solutions are searched, as the
    paper does, for `budget.simulations` probes."""

    def __post_init__(self) -> None:
        positive(self, "alpha", "beta", "length")
        at_most_one(self, "alpha", "beta")
        not_negative(self, "exploration")


class BeamConfig(Config, frozen=True, kw_only=True):
    """Beam search over steps."""

    width: int = 4
    """Partial solutions that are kept at every depth."""
    scorer: Literal["logprob", "rollouts"] = "logprob"
    """`logprob`: mean log-probability of a solution's tokens so far; `rollouts`: share of right ones among `rollouts`
    completions of it."""
    rollouts: int = 4
    """Completions of every candidate, where they are the scorer."""

    def __post_init__(self) -> None:
        positive(self, "width", "rollouts")


class AdaptiveConfig(Config, frozen=True, kw_only=True):
    """Where `adaptive` spends completions, and when it stops."""

    target: Literal["hard", "soft"] = "hard"
    """`hard`: decide on which side of `threshold` each step's value is; `soft`: know the values themselves."""
    threshold: float = 0.5
    """The threshold of the hard labels that the run is for (`label.threshold`)."""
    min_gain: float = 0.01
    """The tree is done where a whole solution's tokens, spent in the best place, take less than this from the steps'
    summed uncertainty: P(1 - P) with P the chance of the label 1, or the variance of the value. 0 goes on until a
    budget ends it."""
    split: bool = False
    """The search looks at every second completion of a step only, and the estimator `held_out` at the others only:
    exactly unbiased values, for up to twice the tokens. `children` must be even."""

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be in [0, 1), not {self.threshold!r}")
        not_negative(self, "min_gain")


GIVEN_STRATEGIES = ("step-rollouts", "omega", "adaptive")
"""The strategies that can start from given solutions."""


class SearchConfig(Config, frozen=True, kw_only=True):
    """How trees grow. `docs/strategies.md` describes the strategies."""

    strategy: Literal["mcts", "exhaustive", "omega", "step-rollouts", "adaptive", "best-of-n", "beam"] = "mcts"
    """`mcts`: UCT/PUCT over steps; `exhaustive`: the HRM paper's breadth-first construction (arXiv 2503.13551);
    `omega`: OmegaPRM (arXiv 2406.06592); `step-rollouts`: Math-Shepherd (arXiv 2312.08935); `adaptive`: completions of
    the steps whose labels they decide most; `best-of-n` and `beam`: baselines."""
    children: int = 0
    """Samples of one request (k): at an expansion, a probe or a step. 0 is the strategy's default: 4, 5 (the HRM
    paper's) for `exhaustive`, 8 (both papers') for `omega` and `step-rollouts`."""
    given: bool = False
    """The solutions are those of the run's `given.parquet` (`treeforge annotate`) and none is sampled first:
    `step-rollouts`, `omega` and `adaptive`."""
    solutions: int = 0
    """`step-rollouts`, `adaptive` and `best-of-n`: solutions of one problem. 0 is the strategy's default: 4, 4 and
    16."""
    max_depth: int = 16
    """`mcts` and `beam`: nodes at this depth are not expanded further (`mcts`: their rollouts still run to the end)."""
    levels: int = 5
    """`exhaustive`: levels of nodes; the nodes of the last one are completed to the end."""
    max_steps: int = 64
    """A trajectory with more steps than this is truncated."""
    wave: int = 4
    """Requests of one tree that are made together; `mcts`: simulations selected together, under virtual loss."""
    sample: Literal["rollout", "step"] = "rollout"
    """What one request of `mcts` asks for: whole completions, whose first step becomes a node, or single steps.

    With `step` a new node is evaluated by `children` rollouts when it is first selected. `exhaustive` and `beam` always
    ask for single steps (`exhaustive` for whole completions at its last level), the other strategies never.
    """
    merge_duplicates: bool = True
    """Byte-identical siblings become one node with a `multiplicity`."""
    selection: Literal["puct", "uct"] = "puct"
    """`mcts`: PUCT (AlphaZero) or UCT (Kocsis & Szepesvári 2006)."""
    exploration: float = 1.4
    """`mcts`: c_puct or the UCT constant."""
    prior: Literal["share", "uniform", "logprob"] = "share"
    """`mcts`: P of PUCT: a child's share of the samples; the same for all siblings; or the softmax over siblings of
    their mean log-probability a token (AlphaMath, arXiv 2405.03553), the share where one of them is unknown."""
    prior_temperature: float = 1.0
    """`mcts`: temperature of the softmax."""
    expansions: int = 1
    """`mcts`: how often one node may be expanded, each time with the next sample index. No limit under `widening`."""
    widening: float = 0.0
    """`mcts`: C of progressive widening (Coulom 2007): a node is expanded again while it was given fewer samples than
    C · N^widening_power. 0 is off."""
    widening_power: float = 0.5
    """`mcts`: the exponent, in (0, 1)."""
    screen: int = 0
    """Solutions that are sampled first, to see whether the problem has something to teach; 0 is off."""
    keep: str = "0.1..0.9"
    """With `screen`: the share of right ones, both ends included, with which a problem is searched."""
    omega: OmegaConfig = OmegaConfig()
    beam: BeamConfig = BeamConfig()
    adaptive: AdaptiveConfig = AdaptiveConfig()

    def __post_init__(self) -> None:
        positive(self, "max_depth", "levels", "max_steps", "wave", "expansions", "prior_temperature")
        not_negative(self, "children", "solutions", "exploration", "widening", "screen")
        if max(self.max_depth, self.levels) > self.max_steps:
            raise ValueError(f"max_steps ({self.max_steps}) must be at least max_depth and levels")
        if self.max_steps > 10_000:
            raise ValueError("max_steps must be at most 10000")
        if not 0 < self.widening_power < 1:
            raise ValueError(f"widening_power must be in (0, 1), not {self.widening_power!r}")
        _ = self.keep_range
        if self.given and self.strategy not in GIVEN_STRATEGIES:
            raise ValueError(
                f"strategy {self.strategy!r} does not start from given solutions; those that do are "
                + ", ".join(GIVEN_STRATEGIES)
            )
        if self.given and self.screen:
            raise ValueError("screen samples solutions first; with given ones it must be 0")
        if not self.children:
            default = {"exhaustive": 5, "omega": 8, "step-rollouts": 8}.get(self.strategy, 4)
            msgspec.structs.force_setattr(self, "children", default)
        if self.strategy == "adaptive" and self.adaptive.split and self.children % 2:
            raise ValueError(f"children must be even with adaptive.split, not {self.children}")
        if not self.solutions:
            msgspec.structs.force_setattr(self, "solutions", 16 if self.strategy == "best-of-n" else 4)

    @property
    def keep_range(self) -> tuple[float, float]:
        """`keep` as (lowest, highest) share. Raises `ValueError` where it is none."""
        low, dots, high = self.keep.partition("..")
        try:
            found = float(low), float(high)
        except ValueError:
            found = math.nan, math.nan
        if not dots or not 0 <= found[0] <= found[1] <= 1:
            raise ValueError(f"keep must be LOW..HIGH with 0 <= LOW <= HIGH <= 1, as in 0.1..0.9, not {self.keep!r}")
        return found

    @property
    def counts_simulations(self) -> bool:
        """Whether `budget.simulations` limits the strategy."""
        return self.strategy == "mcts" or (self.strategy == "omega" and (not self.given or self.omega.further))


class BudgetConfig(Config, frozen=True, kw_only=True):
    """What may be spent. 0 is no limit. Limits a tree are counts and stop at wave boundaries."""

    simulations: int = 16
    """A tree: simulations (one selection, one request, one backup each)."""
    nodes: int = 0
    """A tree: nodes, the root included."""
    rollouts: int = 0
    """A tree: sampled completions, steps and rollouts together."""
    tokens: int = 0
    """A tree: sampled tokens."""
    seconds: float = 0
    """A tree: wall time since it was opened in this sitting. Like all limits below, journaled before it acts, so that
    replay stops the same trees at the same wave."""
    run_nodes: int = 0
    """The run: nodes of all trees."""
    run_rollouts: int = 0
    """The run: sampled completions."""
    run_tokens: int = 0
    """The run: sampled tokens."""
    run_seconds: float = 0
    """The run: wall time of one sitting, in seconds."""

    def __post_init__(self) -> None:
        not_negative(self, *self.__struct_fields__)

    @property
    def journaled(self) -> tuple[float, ...]:
        """The limits that depend on the clock or on other trees."""
        return (self.seconds, self.run_nodes, self.run_rollouts, self.run_tokens, self.run_seconds)
