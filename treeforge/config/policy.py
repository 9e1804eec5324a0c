"""The language model: which, how its steps are told apart, and how it samples."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from treeforge.config.base import Config, not_negative, positive


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
        positive(self, "max_step_chars")
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
        positive(self, "max_tokens", "max_step_tokens")
        not_negative(self, "temperature", "top_k", "continuations")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p!r}")
