"""Frozen configuration. `recipe` must match when a run is resumed; `machine` may change.

A config is a TOML file plus dotted overrides (`search.wave=8`); see `treeforge.configuration.load`.
"""

from __future__ import annotations

from treeforge.config.base import Config
from treeforge.config.policy import PolicyConfig, SamplingConfig, StepsConfig
from treeforge.config.run import JudgeConfig, Machine, Recipe, RunConfig
from treeforge.config.search import (
    GIVEN_STRATEGIES,
    AdaptiveConfig,
    BeamConfig,
    BudgetConfig,
    OmegaConfig,
    SearchConfig,
)
from treeforge.config.views import CompressConfig, ExportConfig, LabelConfig

__all__ = [
    "GIVEN_STRATEGIES",
    "AdaptiveConfig",
    "BeamConfig",
    "BudgetConfig",
    "CompressConfig",
    "Config",
    "ExportConfig",
    "JudgeConfig",
    "LabelConfig",
    "Machine",
    "OmegaConfig",
    "PolicyConfig",
    "Recipe",
    "RunConfig",
    "SamplingConfig",
    "SearchConfig",
    "StepsConfig",
]
