"""Frozen configuration. `recipe` must match when a run is resumed; `machine` may change.

A config is a TOML file plus dotted overrides (`search.wave=8`); see `treeforge.configuration.load`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

import msgspec

T = TypeVar("T")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """Base of all configs: immutable, keyword-only, unknown keys refused."""


def _positive(config: Config, *names: str) -> None:
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise ValueError(f"{name} must be greater than 0, not {getattr(config, name)!r}")


def _not_negative(config: Config, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must not be negative{'' if value < 0 else ' or infinite'}, not {value!r}")


def _at_most_one(config: Config, *names: str) -> None:
    for name in names:
        if not getattr(config, name) <= 1:
            raise ValueError(f"{name} must be at most 1, not {getattr(config, name)!r}")


class PolicyConfig(Config, frozen=True, kw_only=True):
    """Which language model."""

    backend: Literal["scripted", "local", "server", "vllm"] = "local"
    """`local`: llama.cpp in process; `server`: any OpenAI-compatible server; `vllm`: vLLM in process, or a server of it
    for each GPU (`machine.replicas`); `scripted`: the synthetic world."""
    model: str = "smollm2-135m"
    """A name of the model registry; a path to a GGUF file, or `hf://OWNER/NAME/FILE.gguf@REVISION` (`local`); a folder
    in Hugging Face's format or a Hub name (`vllm`); the model name that a server expects."""
    adapter: str = ""
    """`vllm`: the folder of a LoRA adapter in PEFT's format; '' for none."""
    engine: dict[str, Any] = msgspec.field(default_factory=dict)
    """`vllm`: arguments of its engine that change what the model answers, by vLLM's names: `dtype`, `quantization`,
    `max_model_len`, `revision`, …"""
    scripted: dict[str, float | int | str] = msgspec.field(default_factory=dict)
    """Parameters of `ScriptedPolicy`'s world, where that is the backend."""

    def __post_init__(self) -> None:
        if self.backend != "vllm" and (self.engine or self.adapter):
            raise ValueError("engine and adapter are for the backend 'vllm'")


class StepsConfig(Config, frozen=True, kw_only=True):
    """How a prompt is made and a completion split into steps. Presets: `treeforge.policy.prompts.PRESETS`."""

    preset: str = "smollm"
    """The name of the preset that the other fields came from; `custom` where they were written by hand."""
    template: Literal["completion", "chat"] = "completion"
    """`completion`: one text; `chat`: the model's own chat template, with the steps so far as the assistant's
    prefix."""
    system: str = ""
    """Chat: the system message; '' for none."""
    prompt: str = "{question}"
    """The text (completion) or user message (chat); `{question}` is replaced by the question, other braces are kept."""
    assistant_start: str = ""
    """Text put before the first step: the start of the assistant's message or of the completion."""
    delimiter: str = "\n"
    """Ends a step; kept at the end of the step's text."""
    split: Literal["delimiter", "sentence", "turns"] = "delimiter"
    """Where a completion is cut into steps: after each delimiter; after each sentence; or before each turn of a long
    reasoning trace, a sentence that begins with one of `turn_words`. The last two need `search.sample = "rollout"`."""
    turn_words: tuple[str, ...] = (
        "Wait", "But wait", "Hmm", "Alternatively", "Actually", "Hold on", "On second thought", "Let me check",
        "Let me verify", "Let me try", "Another way", "Another approach",
    )  # fmt: skip
    """How a new turn begins."""
    think_open: str = "<think>"
    """Opens a reasoning model's thinking section; '' where the model's own template has opened it already."""
    think_close: str = "</think>"
    """Closes it. An answer marker inside the section does not end the trajectory, and a completion that ends inside it
    is truncated, without an answer. '' for models without such a section."""
    stop: tuple[str, ...] = ()
    """Strings at which the model must stop; never part of a step."""
    answer_markers: tuple[str, ...] = ("The answer is", "\\boxed{")
    """A step that contains one of these ends the trajectory with an answer."""
    max_step_chars: int = 20_000
    """A longer step is cut there and the trajectory counts as truncated: model text is bounded in size."""

    def __post_init__(self) -> None:
        _positive(self, "max_step_chars")
        if not self.delimiter:
            raise ValueError("delimiter must not be empty")
        if "{question}" not in self.prompt:
            raise ValueError("prompt must contain {question}")
        if self.split == "turns" and not all(self.turn_words):
            raise ValueError("turn_words must not be empty")


class SamplingConfig(Config, frozen=True, kw_only=True):
    """How the model samples."""

    temperature: float = 0.8
    """0 is greedy."""
    top_p: float = 1.0
    """Nucleus mass in (0, 1]; 1 is off."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 is off."""
    max_tokens: int = 256
    """Tokens of one completion to the end."""
    max_step_tokens: int = 128
    """Tokens of one step where steps are sampled one at a time."""
    continuations: int = 0
    """How often a completion that `max_tokens` cut off is continued, with `max_tokens` more each time."""

    def __post_init__(self) -> None:
        _positive(self, "max_tokens", "max_step_tokens")
        _not_negative(self, "temperature", "top_k", "continuations")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p!r}")


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
        _positive(self, "alpha", "beta", "length")
        _at_most_one(self, "alpha", "beta")
        _not_negative(self, "exploration")


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
        _positive(self, "width", "rollouts")


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
        _not_negative(self, "min_gain")


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
        _positive(self, "max_depth", "levels", "max_steps", "wave", "expansions", "prior_temperature")
        _not_negative(self, "children", "solutions", "exploration", "widening", "screen")
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
        _not_negative(self, *self.__struct_fields__)

    @property
    def journaled(self) -> tuple[float, ...]:
        """The limits that depend on the clock or on other trees."""
        return (self.seconds, self.run_nodes, self.run_rollouts, self.run_tokens, self.run_seconds)


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
        _positive(self, "block")
        by_step = self.search.sample == "step" or self.search.strategy in ("exhaustive", "beam")
        if self.steps.split != "delimiter" and by_step:
            raise ValueError(
                f"steps.split '{self.steps.split}' needs whole completions (search.sample = 'rollout', and not "
                "the strategies 'exhaustive' and 'beam'): no stop string ends such a step"
            )
        limited = any((self.budget.rollouts, self.budget.tokens, *self.budget.journaled))
        if self.search.strategy == "adaptive" and not self.search.adaptive.min_gain and not limited:
            raise ValueError("search.adaptive.min_gain = 0 needs a budget (budget.tokens, budget.rollouts …)")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed must fit in 64 bits, not {self.seed}")


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
        _positive(self, "concurrency", "open_trees", "commit_rows", "metrics_seconds")
        _positive(self, "request_timeout", "request_total_timeout")
        _not_negative(self, "retries", "backoff", "threads", "replicas")
        if self.servers and self.servers_file:
            raise ValueError("servers and servers_file are both given; name the servers in one place")
        if any("@" in server for server in self.servers):
            raise ValueError("servers must not hold a user or password; the API key comes from the environment")


class LabelConfig(Config, frozen=True, kw_only=True):
    """Values and step labels: a view of the trees."""

    estimator: Literal["policy_mean", "leaf_share", "visit_mean", "smoothed", "held_out", "human", "imported"] = (
        "policy_mean"
    )
    """`policy_mean` weighs what the policy sampled; `leaf_share` is the HRM paper's share of correct leaves;
    `visit_mean` is W/N, what the search itself saw; `smoothed` lets neighbouring steps inform each other;
    `held_out`, for `adaptive` with `split`, counts what the search did not look at. Trees labelled by the last three
    cannot be compressed."""
    threshold: float = 0.5
    """A step is hard-labelled 1 where its value is greater than this; 0 is Math-Shepherd's "any correct"."""
    band: float = 0.0
    """Half the width of the band around the threshold in which a step gets no hard label; its soft label stays."""
    confidence: float = 0.9
    """Level of the intervals, in (0, 1)."""
    truncated: Literal["wrong", "skip"] = "wrong"
    """Truncated trajectories count as wrong (value = ends correct within the budget) or are left out."""
    min_rollouts: int = 1
    """Steps with fewer outcomes below them get no label."""
    second: Literal["beside", "agree"] = "beside"
    """Second opinions (`treeforge label --second`) stand beside the labels, or take away the hard ones that one of them
    contradicts."""

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be in [0, 1), not {self.threshold!r}")
        if not 0 <= self.band <= 1:
            raise ValueError(f"band must be in [0, 1], not {self.band!r}")
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), not {self.confidence!r}")
        _positive(self, "min_rollouts")


class CompressConfig(Config, frozen=True, kw_only=True):
    """Hierarchical Node Compression (HRM paper, arXiv 2503.13551, Section 3.3): a view of the trees."""

    probability: float = 0.5
    """Chance that an eligible node merges with one of its children."""
    min_children: int = 4
    """A node with fewer children never merges."""
    rule: Literal["uniform", "paper"] = "uniform"
    """Which child: uniform among the evaluated ones, or the paper's sequential coin flip, which favours low indices."""
    seed: int = 0
    """Together with the problem's id, the seed of its tree's merges."""
    max_label_shift: float = 1.0
    """Refuse merges that move the node's value further than this; 1 refuses none."""
    target_noise: float = 0.0
    """Pick merges until the mean value shift over all evaluated nodes reaches this; 0 is off."""
    passes: int = 1
    """Compressed trees made of each tree, no two of them alike; fewer where its merges run out."""

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= 100:
            raise ValueError(f"passes must be in 1..100, not {self.passes!r}")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must be in [0, 1], not {self.probability!r}")
        if self.min_children < 2:
            raise ValueError(f"min_children must be at least 2, not {self.min_children!r}")
        _not_negative(self, "max_label_shift", "target_noise")


class ExportConfig(Config, frozen=True, kw_only=True):
    """Training shards: a view of the labels."""

    formats: tuple[str, ...] = ("hrm", "nodes")
    """Names of formats; the first is the dataset's default configuration, in the folder `data/`."""
    rows_per_shard: int = 100_000
    """Rows in one shard at most."""
    test_share: float = 0.0
    """Share of the problems in the split `test`, chosen by a digest of the problem's id."""
    validation_share: float = 0.1
    """Share of the problems in the split `validation`."""
    license: str = "other"
    """The dataset's licence, for the card."""
    spans: tuple[int, ...] = (1, 2)
    """`hrm`: how many consecutive steps a row holds, each in turn."""
    tokenizer: str = ""
    """`tokens`: a `tokenizer.json`, a folder with one, or a name on the Hub."""
    data_source: str = ""
    """`rl` and `math-shepherd`: the name of the problem set; '' is the file that the problem came from."""
    solution_order: Literal["length", "value"] = "length"
    """`sft`: the shortest solutions of a problem first, or those whose steps have the highest values."""
    solutions_per_problem: int = 0
    """`sft`: solutions of one problem at most; 0 is no limit."""
    min_rollouts: int = 0
    """Leave out labels with fewer decided outcomes behind them."""
    max_interval: float = 1.0
    """Leave out labels whose value's interval is wider than this."""
    balance: bool = False
    """Down-sample the more frequent label to the other one's count, by a digest of problem and row."""
    dedupe: Literal["off", "exact", "near"] = "off"
    """Leave out rows of a problem whose text an earlier one has, but for case, white space and punctuation (`exact`) or
    nearly so (`near`), and problems whose question an earlier one has."""
    similarity: float = 0.85
    """`dedupe = "near"`: the share of common character 5-grams (Jaccard) from which two texts are duplicates."""
    where: str = ""
    """An SQL condition on the rows' columns, as in `span = 1 AND rollouts >= 8`; rows that fail it are left out."""
    decontaminate: tuple[str, ...] = ()
    """Benchmark files (JSONL, CSV, Parquet …); problems that share an n-gram of words with one of their questions are
    left out."""
    ngram: int = 13
    """`decontaminate`: words in an n-gram."""

    def __post_init__(self) -> None:
        _positive(self, "rows_per_shard", "ngram")
        _not_negative(self, "test_share", "validation_share", "solutions_per_problem", "min_rollouts", "max_interval")
        if not self.spans or min(self.spans) < 1 or max(self.spans) > 100 or len(set(self.spans)) < len(self.spans):
            raise ValueError(f"spans must be different numbers in 1..100, as in [1, 2], not {list(self.spans)}")
        if not 0 < self.similarity <= 1:
            raise ValueError(f"similarity must be in (0, 1], not {self.similarity!r}")
        if self.test_share + self.validation_share >= 1:
            raise ValueError("test_share + validation_share must leave problems for the split train")


class RunConfig(Config, frozen=True, kw_only=True):
    """Everything a run needs."""

    recipe: Recipe = Recipe()
    machine: Machine = Machine()
    label: LabelConfig = LabelConfig()
    compress: CompressConfig = CompressConfig()
    export: ExportConfig = ExportConfig()
