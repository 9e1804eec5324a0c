"""treeforge grows labelled trees of reasoning steps and turns them into reward-model training data.

    import treeforge as tf

    problems = tf.read_problems("datasets/word_problems.jsonl", limit=20).problems
    result = tf.run(problems, "runs/first", tf.load_config(backend="local"))

The stages one by one are `tf.pipeline.search`, `label`, `compress` and `export` (and `search_async` …): at the top
those names are the rooms they live in. Names are loaded when they are first used, so that `import treeforge` is quick
and needs no optional dependency.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treeforge import pipeline
    from treeforge.annotating import read_solutions
    from treeforge.config import CompressConfig, ExportConfig, LabelConfig, RunConfig
    from treeforge.errors import TreeforgeError
    from treeforge.given import GivenSolution, make_given
    from treeforge.labelled import labelled_solutions
    from treeforge.pipeline import (
        Parts,
        RunResult,
        annotate,
        annotate_async,
        extend,
        extend_async,
        resume,
        resume_async,
        run,
        run_async,
    )
    from treeforge.policy import Policy, ScriptedPolicy
    from treeforge.problem import Problem, make_problem
    from treeforge.recipes import load_config
    from treeforge.sample import Request, Sample
    from treeforge.store.problems import read_problems
    from treeforge.store.run import RunFolder
    from treeforge.tree import Finish, Rollout, Tree, TreeBuilder, TreeRecord
    from treeforge.value import StepLabel, StepValue, Values, estimate
    from treeforge.verdict import Judge, Judgement, Verdict

__all__ = [
    "CompressConfig",
    "ExportConfig",
    "Finish",
    "GivenSolution",
    "Judge",
    "Judgement",
    "LabelConfig",
    "Parts",
    "Policy",
    "Problem",
    "Request",
    "Rollout",
    "RunConfig",
    "RunFolder",
    "RunResult",
    "Sample",
    "ScriptedPolicy",
    "StepLabel",
    "StepValue",
    "Tree",
    "TreeBuilder",
    "TreeRecord",
    "TreeforgeError",
    "Values",
    "Verdict",
    "annotate",
    "annotate_async",
    "estimate",
    "extend",
    "extend_async",
    "labelled_solutions",
    "load_config",
    "make_given",
    "make_problem",
    "pipeline",
    "read_problems",
    "read_solutions",
    "resume",
    "resume_async",
    "run",
    "run_async",
]

_HOME = {
    "annotating": ("read_solutions",),
    "config": ("CompressConfig", "ExportConfig", "LabelConfig", "RunConfig"),
    "sample": ("Request", "Sample"),
    "errors": ("TreeforgeError",),
    "given": ("GivenSolution", "make_given"),
    "labelled": ("labelled_solutions",),
    "pipeline": (
        "Parts",
        "RunResult",
        "annotate",
        "annotate_async",
        "extend",
        "extend_async",
        "resume",
        "resume_async",
        "run",
        "run_async",
    ),
    "policy": ("Policy", "ScriptedPolicy"),
    "problem": ("Problem", "make_problem"),
    "recipes": ("load_config",),
    "store.problems": ("read_problems",),
    "store.run": ("RunFolder",),
    "tree": ("Finish", "Rollout", "Tree", "TreeBuilder", "TreeRecord"),
    "value": ("StepLabel", "StepValue", "Values", "estimate"),
    "verdict": ("Judge", "Judgement", "Verdict"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "pipeline":
        return import_module("treeforge.pipeline")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'treeforge' has no attribute '{name}'")
    return getattr(import_module(f"treeforge.{module}"), name)


def __dir__() -> list[str]:
    return __all__
