"""How a request to an OpenAI-compatible server is written: the completions endpoint or the chat one. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from treeforge.config import SamplingConfig, StepsConfig
from treeforge.policy.prompts import render, render_chat
from treeforge.policy.steps import clean_text

COMPLETION_OPTIONS = frozenset({"n", "logprobs", "seed", "sampling"})
"""What a server may refuse: several samples, log-probabilities, seeds; `sampling`: top_k, min_p, repetition_penalty."""

CHAT_OPTIONS = COMPLETION_OPTIONS | {"continue"}
"""`continue`: the flag by which vLLM and SGLang continue an assistant's message; llama.cpp does so without it."""


class Wire:
    """The wire format of one step format."""

    def __init__(self, steps: StepsConfig) -> None:
        self._steps = steps
        self._unstarted = msgspec.structs.replace(steps, assistant_start="")
        self.chat = steps.template == "chat"
        self.path = "/chat/completions" if self.chat else "/completions"
        self.options = CHAT_OPTIONS if self.chat else COMPLETION_OPTIONS

    def started(self, prefix: str) -> str:
        """The start of the assistant's message, which the model continues; '' where there is none."""
        return clean_text(self._steps.assistant_start + prefix) if self.chat else ""

    def payload(
        self,
        question: str,
        prefix: str | None,
        sampling: SamplingConfig,
        *,
        model: str,
        options: frozenset[str],
        n: int,
        seed: int,
        max_tokens: int,
        stop: list[str],
    ) -> dict[str, Any]:
        """The body of a request, with those `options` that the server takes. `prefix` None: not even its start."""
        payload: dict[str, Any] = {"model": model}
        steps, prefix = (self._unstarted, "") if prefix is None else (self._steps, prefix)
        if self.chat:
            messages = [
                {"role": message["role"], "content": clean_text(message["content"])}
                for message in render_chat(steps, question, prefix)
            ]
            payload["messages"] = messages
            if messages[-1]["role"] == "assistant" and "continue" in options:
                payload |= {"continue_final_message": True, "add_generation_prompt": False}
        else:
            payload["prompt"] = clean_text(render(steps, question, prefix))
        payload |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_tokens": max_tokens}
        if stop:
            payload["stop"] = stop
        if n > 1:
            payload["n"] = n
        if "seed" in options:
            payload["seed"] = seed
        if "logprobs" in options:
            # llama.cpp lists nothing where no top token is asked for.
            payload |= {"logprobs": True, "top_logprobs": 1} if self.chat else {"logprobs": 1}
        if "sampling" in options:
            # Said even where they are off: llama.cpp (top_k 40, min_p 0.05) and vLLM (the model's generation_config)
            # have defaults of their own, and values have to be those of the policy that the recipe states.
            payload |= {"top_k": sampling.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0}
        return payload
