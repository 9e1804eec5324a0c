"""The counters of a run while it goes on."""

from __future__ import annotations

import msgspec


class Progress(msgspec.Struct):
    """Counters of one sitting, updated in place."""

    trees: int = 0
    """Trees in this run."""
    finished: int = 0
    """Trees that ended, including those that had ended before this sitting."""
    open: int = 0
    in_flight: int = 0
    requests: int = 0
    """Answered by the policy in this sitting."""
    replayed: int = 0
    """Answered from the journal in this sitting."""
    completions: int = 0
    """Sampled by the policy in this sitting."""
    tokens: int = 0
    """Sampled by the policy in this sitting."""
    prompt_tokens: int | None = None
    """Of the policy's prompts in this sitting; None where it does not tell what its prefix cache does."""
    cached_tokens: int | None = None
    """Of these, from that cache."""
    run_tokens: int = 0
    """Sampled by the policy in all sittings."""
    run_completions: int = 0
    """Sampled by the policy in all sittings."""
    run_nodes: int = 0
    """Nodes of all trees by now."""
    retries: int = 0
    errors: int = 0
    """Requests given up in this sitting."""
    judged: int = 0
    """Outcomes in the trees that ended in this sitting."""
    correct: int = 0
    """Of these, correct."""
    search_seconds: float = 0.0
    """Wall time of this sitting's search, without the time the policy took to start; set at its end."""
