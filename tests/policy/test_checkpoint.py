"""What can be said of a model folder without transformers; the rest is in `test_vllm.py`."""

import importlib.util
import json
from pathlib import Path

import pytest

from treeforge.config import Machine, PolicyConfig, Recipe
from treeforge.errors import ConfigError, MissingExtraError
from treeforge.policy import open_policy
from treeforge.policy.checkpoint import Checkpoint, adapter_rank, model_source, weights_digest
from treeforge.policy.convert import convert, converted_dir

without_vllm = pytest.mark.skipif(importlib.util.find_spec("transformers") is not None, reason="transformers is here")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TREEFORGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_registry_name_stands_for_its_converted_folder(cache):
    with pytest.raises(ConfigError, match="`treeforge models convert smollm2-135m`"):
        model_source("smollm2-135m")
    folder = converted_dir("smollm2-135m")
    assert folder == cache / "models" / "converted" / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert model_source("smollm2-135m") == str(folder)


def test_folders_and_hub_names(tmp_path):
    assert model_source(str(tmp_path)) == str(tmp_path)
    assert model_source("Qwen/Qwen2.5-7B-Instruct") == "Qwen/Qwen2.5-7B-Instruct"
    assert model_source("gpt2") == "gpt2"


@pytest.mark.parametrize("model", ["/no/such/folder", "./none", "~/none", "a/b/c"])
def test_a_path_that_is_not_there(model):
    with pytest.raises(ConfigError, match="there is no folder"):
        model_source(model)


def test_a_gguf_file_is_to_be_converted(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match=r"not the file model\.gguf.*models convert FILE"):
        model_source(str(file))
    assert converted_dir(str(file)) == tmp_path / "model"


def test_the_digest_follows_the_weights_only(tmp_path):
    def write(name: str, data: bytes) -> str:
        (tmp_path / name).write_bytes(data)
        return weights_digest(tmp_path)

    empty = write("README.md", b"x")
    first = write("model.safetensors", b"a" * 5_000_000)
    assert first != empty
    assert write("README.md", b"y") == write("generation_config.json", b"{}") == first
    changed = {
        write("model.safetensors", b"b" + b"a" * 4_999_999),
        write("model.safetensors", b"a" * 4_999_999 + b"b"),
        write("model.safetensors", b"a" * 4_999_999),
        write("config.json", b"{}"),
    }
    assert len(changed | {first, empty}) == 6


def test_adapters(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 16}))
    assert adapter_rank(str(tmp_path)) == 16
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"policy\.adapter"):
        adapter_rank(str(tmp_path))


def test_a_folder_that_stands_there_is_never_written_into(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("x")
    with pytest.raises(ConfigError, match="is there already and was not made from this"):
        convert(str(file), out)
    assert [one.name for one in out.iterdir()] == ["mine"]


def test_two_conversions_at_once_are_one(tmp_path, monkeypatch):
    file, out, running = tmp_path / "model.gguf", tmp_path / "out", []
    file.write_bytes(b"GGUF" + bytes(100))

    def write(path, folder, report):
        running.append(folder)
        (folder / "weights").write_text(str(len(running)))
        if len(running) == 1:  # meanwhile another process does the same, and is quicker
            with monkeypatch.context() as other:
                other.setattr("os.getpid", lambda: 0)
                convert(str(file), out)

    monkeypatch.setattr("treeforge.policy.convert._write", write)
    assert convert(str(file), out) == out
    assert (out / "weights").read_text() == "2"
    assert len(set(running)) == 2
    assert not any(folder.exists() for folder in running)


@without_vllm
def test_what_to_install(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(MissingExtraError, match=r"pip install 'treeforge\[vllm\]'"):
        convert(str(file))
    assert not (tmp_path / "model").exists()
    with pytest.raises(MissingExtraError, match=r"pip install 'treeforge\[vllm\]'"):
        Checkpoint(str(tmp_path), {})
    for replicas in (0, 2):
        with pytest.raises(MissingExtraError, match=r"pip install 'treeforge\[vllm\]'"):
            open_policy(Recipe(policy=PolicyConfig(backend="vllm")), Machine(replicas=replicas))
