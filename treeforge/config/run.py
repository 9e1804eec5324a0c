"""A run: the recipe, which must match when it is resumed, and the machine, which may change."""

from __future__ import annotations

from typing import Any

import msgspec

from treeforge.config.base import Config, fits_64_bits, not_negative, positive
from treeforge.config.policy import PolicyConfig, SamplingConfig, StepsConfig
from treeforge.config.search import BudgetConfig, SearchConfig
from treeforge.config.views import CompressConfig, ExportConfig, LabelConfig


class JudgeConfig(Config, frozen=True, kw_only=True):
    """How final answers are checked during the search."""

    policy: str = "default"
    """Name of the checker's policy."""


class Recipe(Config, frozen=True, kw_only=True):
    """All that determines a run's tables, given the problems and the journal. Must match on resume."""

    seed: int = 0
    """The run seed; every request's seed is derived from it."""
    policy: PolicyConfig = PolicyConfig()
    steps: StepsConfig = StepsConfig()
    sampling: SamplingConfig = SamplingConfig()
    search: SearchConfig = SearchConfig()
    budget: BudgetConfig = BudgetConfig()
    judge: JudgeConfig = JudgeConfig()
    block: int = 256
    """Problems in one file of `trees/`."""

    def __post_init__(self) -> None:
        positive(self, "block")
        by_step = self.search.sample == "step" or self.search.strategy in ("exhaustive", "beam")
        if self.steps.split != "delimiter" and by_step:
            raise ValueError(
                f"steps.split '{self.steps.split}' needs whole completions (search.sample = 'rollout', and not "
                "the strategies 'exhaustive' and 'beam'): no stop string ends such a step"
            )
        limited = any((self.budget.rollouts, self.budget.tokens, *self.budget.journaled))
        if self.search.strategy == "adaptive" and not self.search.adaptive.min_gain and not limited:
            raise ValueError("search.adaptive.min_gain = 0 needs a budget (budget.tokens, budget.rollouts …)")
        fits_64_bits(self, "seed")


class Machine(Config, frozen=True, kw_only=True):
    """How and where the same recipe is carried out. May change on resume."""

    concurrency: int = 16
    """Requests in flight at once (slots)."""
    open_trees: int = 1024
    """Trees open at once, at most."""
    servers: tuple[str, ...] = ()
    """Base URLs of OpenAI-compatible servers, `http://host:port/v1`."""
    servers_file: str = ""
    """A file with such URLs instead, one a line, `#` for comments. It may change while the run goes on."""
    api_key_env: str = "TREEFORGE_API_KEY"
    """The environment variable that holds the servers' API key. The key itself is stored nowhere."""
    request_timeout: float = 600.0
    """Seconds until one attempt of a request is given up."""
    request_total_timeout: float = 3600.0
    """Seconds until a request is given up, all its attempts and the waits between them together."""
    retries: int = 5
    """Further attempts of a failed request, with exponential backoff and jitter."""
    backoff: float = 0.5
    """Seconds before the first retry; doubled each time, 30 at most."""
    threads: int = 0
    """`local`: CPU threads; 0 is all cores."""
    replicas: int = 0
    """`vllm`: servers that the run starts and stops, each on GPUs of its own; 0 runs the engine in this process."""
    engine: dict[str, Any] = msgspec.field(default_factory=dict)
    """`vllm`: arguments of its engine that do not change answers: `tensor_parallel_size`, `gpu_memory_utilization`,
    `max_num_seqs`, …"""
    metrics_seconds: float = 30.0
    """Seconds between two lines of `logs/metrics.jsonl`."""
    prometheus: str = ""
    """A file that is kept up to date in Prometheus's text format (node_exporter's textfile collector); '' for none."""
    commit_rows: int = 256
    """Journal rows in one transaction at most; a transaction never waits for a further reply."""

    def __post_init__(self) -> None:
        positive(self, "concurrency", "open_trees", "commit_rows", "metrics_seconds")
        positive(self, "request_timeout", "request_total_timeout")
        not_negative(self, "retries", "backoff", "threads", "replicas")
        if self.servers and self.servers_file:
            raise ValueError("servers and servers_file are both given; name the servers in one place")
        if any("@" in server for server in self.servers):
            raise ValueError("servers must not hold a user or password; the API key comes from the environment")


class RunConfig(Config, frozen=True, kw_only=True):
    """Everything a run needs."""

    recipe: Recipe = Recipe()
    machine: Machine = Machine()
    label: LabelConfig = LabelConfig()
    compress: CompressConfig = CompressConfig()
    export: ExportConfig = ExportConfig()
