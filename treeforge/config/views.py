"""Views of the trees: labels, compression, training shards. Any of them can be made again without the model."""

from __future__ import annotations

from typing import Literal

from treeforge.config.base import Config, countable, fits_64_bits, not_negative, positive


class LabelConfig(Config, frozen=True, kw_only=True):
    """Values and step labels: a view of the trees."""

    estimator: Literal["policy_mean", "leaf_share", "visit_mean", "smoothed", "held_out", "human", "imported"] = (
        "policy_mean"
    )
    """`policy_mean` weighs what the policy sampled; `leaf_share` is the HRM paper's share of correct leaves;
    `visit_mean` is W/N, what the search itself saw; `smoothed` lets neighbouring steps inform each other;
    `held_out`, for `adaptive` with `split`, counts what the search did not look at. Trees labelled by the last three
    cannot be compressed."""
    prior: Literal["fixed", "fitted"] = "fixed"
    """What `smoothed` takes to be likely before any outcome: the same for all runs, or fitted to the run's own trees
    when the labels are made."""
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
        positive(self, "min_rollouts")
        countable(self, "min_rollouts")


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
        not_negative(self, "max_label_shift", "target_noise")
        fits_64_bits(self, "seed")


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
        positive(self, "rows_per_shard", "ngram")
        not_negative(self, "test_share", "validation_share", "solutions_per_problem", "min_rollouts", "max_interval")
        countable(self, "rows_per_shard", "ngram", "solutions_per_problem", "min_rollouts")
        if not self.spans or min(self.spans) < 1 or max(self.spans) > 100 or len(set(self.spans)) < len(self.spans):
            raise ValueError(f"spans must be different numbers in 1..100, as in [1, 2], not {list(self.spans)}")
        if not 0 < self.similarity <= 1:
            raise ValueError(f"similarity must be in (0, 1], not {self.similarity!r}")
        if self.test_share + self.validation_share >= 1:
            raise ValueError("test_share + validation_share must leave problems for the split train")
