"""`hf://OWNER/NAME/FILE.gguf@REVISION`: the real client fetches it from a Hub on this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support.hub_server import HubServer

from treeforge.cli import invoke
from treeforge.errors import ConfigError, MissingExtraError, PolicyUnavailableError, StorageError
from treeforge.policy.checkpoint import model_source
from treeforge.policy.convert import convert
from treeforge.policy.hub import HubFile, cached_file, fetch, hub_file, pinned, published_sha256
from treeforge.policy.models import find_model, model_digest, pull
from treeforge.recipes import load_config
from treeforge.store.run import RunFolder

FIRST, SECOND = b"GGUF" + bytes(range(256)) * 40, b"GGUF, another one"
NAME = "hf://owner/tiny/quantised/tiny.gguf"
COMMIT = "0123456789" * 4


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEFORGE_CACHE", str(tmp_path / "treeforge"))


def upload(hub: HubServer, data: bytes, ref: str = "main") -> str:
    return hub.upload("owner/tiny", {"quantised/tiny.gguf": data}, ref)


def the_file(revision: str = "main") -> HubFile:
    return HubFile("owner/tiny", revision, "quantised/tiny.gguf")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (NAME, the_file()),
        (f"{NAME}@v1.0", the_file("v1.0")),
        (f"{NAME}@refs/pr/3", the_file("refs/pr/3")),
        (f"{NAME}@{COMMIT}", the_file(COMMIT)),
        ("hf://owner/tiny@v1.0/quantised/tiny.gguf", the_file("v1.0")),
        ("hf://o/m/M.GGUF", HubFile("o/m", "main", "M.GGUF")),
        ("smollm2-135m", None),
        ("folder/tiny.gguf", None),
    ],
)
def test_names(name: str, found: HubFile | None) -> None:
    assert hub_file(name) == found
    if found is not None:
        assert hub_file(found.name) == found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf://owner/tiny", "names no file"),
        ("hf://owner/tiny/model.safetensors", "names no file"),
        ("hf://tiny.gguf", "names no file"),
        ("hf://owner/tiny/../../etc/tiny.gguf", "names no file"),
        ("hf://owner/tiny@a/tiny.gguf@b", "names no file"),
        (f"{NAME}@", "names no file"),
        ("hf://owner/big/big-00001-of-00003.gguf@main", "one of 3 parts"),
    ],
)
def test_names_of_no_file(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        hub_file(name)


def test_a_branch_is_a_commit_from_then_on(hub: HubServer) -> None:
    first = upload(hub, FIRST)
    file = pinned(the_file())
    assert file == the_file(first)
    upload(hub, SECOND)
    assert fetch(file).read_bytes() == FIRST
    assert published_sha256(fetch(file)) == hashlib.sha256(FIRST).hexdigest()
    assert fetch(pinned(the_file())).read_bytes() == SECOND


def test_what_is_there_is_not_fetched_again(hub: HubServer) -> None:
    file = the_file(upload(hub, FIRST))
    assert cached_file(file) is None
    path = fetch(file)
    hub.requests.clear()
    assert fetch(pinned(file)) == cached_file(file) == path
    assert not hub.requests


def test_a_download_that_breaks_off_is_made_again(hub: HubServer) -> None:
    file = the_file(upload(hub, FIRST))
    hub.fail("GET", "/resolve/", -1)
    assert fetch(file).read_bytes() == FIRST


def test_without_a_network_a_branch_is_what_the_cache_has_of_it(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = upload(hub, FIRST)
    fetch(the_file())  # as other programs do it, by the branch
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    template = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    assert pinned(the_file()) == the_file(commit)
    with pytest.raises(
        PolicyUnavailableError, match=r"tiny\.gguf@v1 cannot be downloaded, since the Hub cannot be reached"
    ):
        pinned(the_file("v1"))
    with pytest.raises(PolicyUnavailableError, match="the path of a GGUF file"):
        fetch(the_file(COMMIT))


def test_the_hub_is_switched_off(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = upload(hub, FIRST)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for call in (lambda: pinned(the_file()), lambda: fetch(the_file(commit))):
        with pytest.raises(PolicyUnavailableError, match="HF_HUB_OFFLINE"):
            call()
    assert not hub.requests


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_hub_that_fails_is_an_outage(hub: HubServer, status: int) -> None:
    commit = upload(hub, FIRST)
    for method in ("HEAD", "GET"):
        hub.fail(method, "/resolve/", status, times=10**6)
    for call in (lambda: pinned(the_file()), lambda: fetch(the_file(commit))):
        with pytest.raises(PolicyUnavailableError, match="the Hub cannot be reached"):
            call()


def test_what_is_not_there(hub: HubServer) -> None:
    commit = upload(hub, FIRST)
    cases = {
        "there is no model owner/other on the Hub": HubFile("owner/other", "main", "tiny.gguf"),
        "owner/tiny has no revision 'v9'": the_file("v9"),
        "owner/tiny has no file 'other.gguf' at the revision main": HubFile("owner/tiny", "main", "other.gguf"),
    }
    for said, file in cases.items():
        with pytest.raises(ConfigError, match=said):
            pinned(file)
    with pytest.raises(ConfigError, match=f"has no revision '{COMMIT}'"):
        fetch(the_file(COMMIT))
    with pytest.raises(ConfigError, match="has no file"):
        fetch(HubFile("owner/tiny", commit, "other.gguf"))


def test_a_mirror_that_tells_no_commits(hub: HubServer) -> None:
    upload(hub, FIRST)
    hub.tells_commits = False
    with pytest.raises(ConfigError, match="does not say which commit"):
        pinned(the_file())


def test_what_one_may_not_see(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    upload(hub, FIRST)
    hub.repos["owner/tiny"].gated = True
    with pytest.raises(ConfigError, match=r"owner/tiny is gated\. Accept its terms .* HF_TOKEN"):
        pinned(the_file())
    hub.repos["owner/tiny"].gated, hub.repos["owner/tiny"].private = False, True
    assert fetch(pinned(the_file())).read_bytes() == FIRST
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigError, match="none that you may see; where it is private"):
        pinned(the_file())
    secret = "hf_SecretSecretSecret"
    monkeypatch.setenv("HF_TOKEN", secret)
    with pytest.raises(ConfigError) as caught:
        pinned(the_file())
    assert secret not in str(caught.value)


def test_a_cache_that_cannot_be_written(hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = the_file(upload(hub, FIRST))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StorageError, match="cannot be stored: Not a directory"):
        fetch(file)


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"treeforge\[hub\]"):
        pinned(the_file())


def test_pull_path_and_digest(hub: HubServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    commit = upload(hub, FIRST)
    assert invoke(["models", "path", NAME]) == 2
    assert f"treeforge models pull {NAME}" in capsys.readouterr().err
    assert invoke(["models", "pull", NAME]) == 0
    said = capsys.readouterr()
    assert f"{NAME}@{commit}" in said.err
    path = Path(said.out.strip())
    assert path.read_bytes() == FIRST
    assert find_model(f"{NAME}@{commit}") == path
    before = set(path.parent.iterdir()) | set(path.resolve().parent.iterdir())
    assert model_digest(path) == hashlib.sha256(FIRST).hexdigest()
    assert set(path.parent.iterdir()) | set(path.resolve().parent.iterdir()) == before, "the client's cache is its own"
    assert [file.suffix for file in (tmp_path / "treeforge" / "models").iterdir()] == [".sha256"]
    upload(hub, b"a page")
    with pytest.raises(ConfigError, match="is not a GGUF file"):
        pull(NAME)


def test_other_places_for_such_a_name_say_what_to_do(hub: HubServer) -> None:
    upload(hub, FIRST)
    pull(NAME)
    with pytest.raises(ConfigError, match="vLLM takes a Hub name as OWNER/NAME"):
        model_source(NAME)
    with pytest.raises(ConfigError, match="--out"):
        convert(f"{NAME}@{hub.repos['owner/tiny'].refs['main']}")


def test_a_configuration_names_the_commit(hub: HubServer) -> None:
    commit = upload(hub, FIRST)
    assert load_config(model=NAME).recipe.policy.model == f"{NAME}@{commit}"
    hub.requests.clear()
    assert load_config(model=f"{NAME}@{commit}").recipe.policy.model == f"{NAME}@{commit}"
    assert load_config(model=NAME, backend="server").recipe.policy.model == NAME
    assert not hub.requests


@pytest.mark.slow
def test_a_run_keeps_the_file_that_it_was_started_with(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TREEFORGE_CACHE")
    weights = pull("smollm2-135m").read_bytes()
    monkeypatch.setenv("TREEFORGE_CACHE", str(tmp_path / "treeforge"))
    first = upload(hub, weights)
    problems, run = tmp_path / "problems.jsonl", tmp_path / "run"
    problems.write_text('{"question": "What is 2 + 3?", "answer": "5"}\n')
    command = ["run", str(problems), "--out", str(run), "--model", NAME, "--preset", "smollm", "--simulations", "1"]
    command += ["--set=search.children=2", "--set=sampling.max_tokens=8", "--quiet"]
    assert invoke(command) == 0, capsys.readouterr().err
    identity = RunFolder.open(run).manifest["policy"]
    assert (identity["model"], identity["revision"]) == (NAME, first)
    assert identity["sha256"] == hashlib.sha256(weights).hexdigest()
    assert RunFolder.open(run).manifest["recipe"]["policy"]["model"] == f"{NAME}@{first}"

    second = upload(hub, weights + b"\0")
    assert invoke(command) == 2
    said = capsys.readouterr().err
    assert first[-10:] in said
    assert second[-10:] in said
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert invoke(["extend", str(run), "--budget", "simulations=2", "--quiet"]) == 0, capsys.readouterr().err

    # Another file in its place is found out.
    blob = fetch(the_file(first)).resolve()
    blob.write_bytes(weights + b"\0")
    assert invoke(["extend", str(run), "--budget", "simulations=3", "--quiet"]) == 2
    assert f"{blob} is damaged" in capsys.readouterr().err
