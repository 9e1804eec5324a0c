"""One engine in this process and two servers, for all tests on the real vLLM: each start takes half a minute."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.real_vllm import MODEL, InProcess, Replicas

from treeforge.policy import models


@pytest.fixture(scope="session")
def folder() -> Path:
    """The model in Hugging Face's format."""
    from treeforge.policy.convert import convert

    models.pull(MODEL)
    return convert(MODEL)


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """A LoRA adapter with random weights, large enough to change what is sampled."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((folder / "config.json").read_text())
    out = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(0)
    size, rank, tensors = config["hidden_size"], 8, {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(rank, size)
        tensors[f"{name}.lora_B.weight"] = torch.randn(size, rank)
    save_file(tensors, out / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none"}
    (out / "adapter_config.json").write_text(json.dumps(settings))
    return out


@pytest.fixture(scope="session")
def _starting(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas | None]:
    """The servers start beside the first tests, which leave a core idle."""
    from treeforge.policy.checkpoint import Checkpoint

    Checkpoint(
        MODEL, {}
    )  # transformers imports its parts when they are first used, which two threads must not do at once
    wanted = any("replicas" in getattr(item, "fixturenames", ()) for item in request.session.items)
    found = Replicas(tmp_path_factory.mktemp("replicas")) if wanted else None
    yield found
    if found is not None:
        found.end()


@pytest.fixture(scope="session")
def replicas(_starting: Replicas | None) -> Replicas:
    assert _starting is not None
    assert _starting.policy
    return _starting


@pytest.fixture(scope="session")
def loaded(adapter: Path, _starting: Replicas | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    found = InProcess(adapter, tmp_path_factory.mktemp("logs"))
    assert found.policy
    yield found
    found.end()
