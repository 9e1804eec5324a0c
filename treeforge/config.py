"""Frozen configuration. `recipe` must match when a run is resumed; `machine` may change.

A config is a TOML file plus dotted overrides (`search.wave=8`); see `treeforge.config.load`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from treeforge.errors import ConfigError, DataError

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


class PolicyConfig(Config, frozen=True, kw_only=True):
    """Which language model."""

    backend: Literal["scripted", "local", "server"] = "local"
    """`local`: llama.cpp in process; `server`: any OpenAI-compatible server; `scripted`: the synthetic world."""
    model: str = "smollm2-135m"
    """A name of the model registry, a path to a GGUF file, or the model name that a server expects."""
    scripted: dict[str, float | int | str] = msgspec.field(default_factory=dict)
    """Parameters of `ScriptedPolicy`'s world, where that is the backend."""


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


class SearchConfig(Config, frozen=True, kw_only=True):
    """How trees grow."""

    strategy: Literal["mcts", "exhaustive"] = "mcts"
    """`mcts`: UCT/PUCT over steps; `exhaustive`: the HRM paper's breadth-first construction (arXiv 2503.13551)."""
    children: int = 0
    """Samples at an expansion (k). 0 is the strategy's default: 4 for `mcts`, 5 (the HRM paper's) for `exhaustive`."""
    max_depth: int = 16
    """`mcts`: nodes at this depth are not expanded further (their rollouts still run to the end)."""
    levels: int = 5
    """`exhaustive`: levels of nodes; the nodes of the last one are completed to the end."""
    max_steps: int = 64
    """A trajectory with more steps than this is truncated."""
    wave: int = 4
    """Simulations of one tree that are selected together, under virtual loss."""
    sample: Literal["rollout", "step"] = "rollout"
    """What one request asks for: whole completions, whose first step becomes a node, or single steps.

    `mcts` with `step` evaluates a new node by `children` rollouts when it is first selected. `exhaustive` always
    asks for single steps, and for whole completions at its last level.
    """
    merge_duplicates: bool = True
    """Byte-identical siblings become one node with a `multiplicity`."""
    selection: Literal["puct", "uct"] = "puct"
    """PUCT (AlphaZero) with the share of samples as prior, or UCT (Kocsis & Szepesvári 2006)."""
    exploration: float = 1.4
    """c_puct or the UCT constant."""
    expansions: int = 1
    """How often one node may be expanded, each time with the next sample index."""

    def __post_init__(self) -> None:
        _positive(self, "max_depth", "levels", "max_steps", "wave", "expansions")
        _not_negative(self, "children", "exploration")
        if max(self.max_depth, self.levels) > self.max_steps:
            raise ValueError(f"max_steps ({self.max_steps}) must be at least max_depth and levels")
        if self.max_steps > 10_000:
            raise ValueError("max_steps must be at most 10000")
        if not self.children:
            msgspec.structs.force_setattr(self, "children", 5 if self.strategy == "exhaustive" else 4)


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
        by_step = self.search.sample == "step" or self.search.strategy == "exhaustive"
        if self.steps.split != "delimiter" and by_step:
            raise ValueError(
                f"steps.split '{self.steps.split}' needs whole completions (search.sample = 'rollout', strategy "
                "'mcts'): no stop string ends such a step"
            )
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
    metrics_seconds: float = 30.0
    """Seconds between two lines of `logs/metrics.jsonl`."""
    prometheus: str = ""
    """A file that is kept up to date in Prometheus's text format (node_exporter's textfile collector); '' for none."""
    commit_rows: int = 256
    """Journal rows in one transaction at most; a transaction never waits for a further reply."""

    def __post_init__(self) -> None:
        _positive(self, "concurrency", "open_trees", "commit_rows", "metrics_seconds")
        _positive(self, "request_timeout", "request_total_timeout")
        _not_negative(self, "retries", "backoff", "threads")
        if self.servers and self.servers_file:
            raise ValueError("servers and servers_file are both given; name the servers in one place")
        if any("@" in server for server in self.servers):
            raise ValueError("servers must not hold a user or password; the API key comes from the environment")


class LabelConfig(Config, frozen=True, kw_only=True):
    """Values and step labels: a view of the trees."""

    estimator: Literal["policy_mean", "leaf_share"] = "policy_mean"
    """`policy_mean` weighs what the policy sampled; `leaf_share` is the paper's share of correct leaves."""
    threshold: float = 0.5
    """A step is hard-labelled 1 where its value is greater than this."""
    confidence: float = 0.9
    """Level of the intervals, in (0, 1)."""
    truncated: Literal["wrong", "skip"] = "wrong"
    """Truncated trajectories count as wrong (value = ends correct within the budget) or are left out."""
    min_rollouts: int = 1
    """Steps with fewer outcomes below them get no label."""

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be in [0, 1), not {self.threshold!r}")
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

    def __post_init__(self) -> None:
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

    def __post_init__(self) -> None:
        _positive(self, "rows_per_shard")
        _not_negative(self, "test_share", "validation_share")
        if self.test_share + self.validation_share >= 1:
            raise ValueError("test_share + validation_share must leave problems for the split train")


class RunConfig(Config, frozen=True, kw_only=True):
    """Everything a run needs."""

    recipe: Recipe = Recipe()
    machine: Machine = Machine()
    label: LabelConfig = LabelConfig()
    compress: CompressConfig = CompressConfig()
    export: ExportConfig = ExportConfig()


def load(path: Path | None = None, overrides: Iterable[str] = (), base: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a TOML file, apply `key.sub=value` overrides, and validate.

    Keys below `recipe` may be written without it (`search.wave=8`). Values are TOML; text needs no quotes.
    Raises `ConfigError` (key and allowed values) or `DataError` (file and position).
    """
    data: dict[str, Any] = _merge({}, base or {})
    if path is not None:
        try:
            data = _merge(data, tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", path=path) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"is not valid TOML: {error}", path=path) from error
    for key, value in parse_overrides(overrides).items():
        _set(data, key, value)
    return convert(data, RunConfig)


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts as a mapping. Values are TOML; text needs no quotes. Raises `ConfigError`."""
    found: dict[str, Any] = {}
    for item in overrides:
        key, sign, value = item.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"'{item}' is no override; write KEY=VALUE, as in search.wave=8")
        found[key.strip()] = _toml_value(value)
    return found


def convert(data: Mapping[str, Any], kind: type[T]) -> T:
    """Validate a mapping as a config; `ConfigError` names the key."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        where = where.rstrip("`")
        raise ConfigError(f"{where or kind.__name__}: {message}{_choices(kind, where, message)}") from None


def _choices(kind: Any, where: str, message: str) -> str:
    """The keys or values that are allowed where `message` complains of another."""
    for name in where.split(".") if where else ():
        kind = get_type_hints(kind).get(name) if hasattr(kind, "__struct_fields__") else None
    if "unknown field" in message and hasattr(kind, "__struct_fields__"):
        return f"; the keys are {', '.join(kind.__struct_fields__)}"
    if "Invalid enum value" in message and get_origin(kind) is Literal:
        return f"; the values are {', '.join(get_args(kind))}"
    return ""


def to_dict(config: Config) -> dict[str, Any]:
    """The config as plain JSON data, with every default written out."""
    result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config))
    return result


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[object, object]]:
    """Dotted keys whose values differ: {key: (old, new)}."""
    out: dict[str, tuple[object, object]] = {}
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            out |= differences(a, b, f"{prefix}{key}.")
        elif a != b:
            out[prefix + key] = (a, b)
    return out


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`base` overlaid with `extra`, section by section, as new dictionaries."""
    out = dict(base)
    for key, value in extra.items():
        old = out.get(key)
        out[key] = _merge(old if isinstance(old, dict) else {}, value) if isinstance(value, Mapping) else value
    return out


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    parts = key.split(".")
    if parts[0] not in RunConfig.__struct_fields__:
        if parts[0] not in Recipe.__struct_fields__:
            raise ConfigError(f"'{key}' is no key; the sections are {', '.join(_sections())}")
        parts.insert(0, "recipe")
    for part in parts[:-1]:
        below = data.setdefault(part, {})
        if not isinstance(below, dict):
            raise ConfigError(f"'{key}': '{part}' holds a value, not a section")
        data = below
    data[parts[-1]] = value


def _sections() -> list[str]:
    return sorted({*RunConfig.__struct_fields__, *Recipe.__struct_fields__} - {"recipe"})


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
