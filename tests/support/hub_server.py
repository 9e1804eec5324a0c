"""A Hugging Face Hub in memory on a loopback port: the endpoints that pushing, pulling, `load_dataset` and the download
of a model's file use.

Standard library only; datasets and models share their names. It checks tokens, keeps commits, branches and pull
requests, and fails on request: `fail` answers the next requests that match with a status, or cuts their connection.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

WRITER, READER = "hf_writer", "hf_reader"
Files = dict[str, str]


@dataclass
class Fault:
    method: str
    path: str
    """A regular expression."""
    status: int
    """0 cuts the connection before an answer, -1 in the middle of a body."""
    times: int
    skip: int
    after: bool
    """Do what was asked first, then fail: the answer is lost."""


@dataclass
class Repo:
    private: bool
    gated: bool = False
    """Nobody has accepted its terms."""
    refs: dict[str, str] = field(default_factory=dict)
    """Commit by branch or `refs/pr/N`."""
    commits: dict[str, Files] = field(default_factory=dict)
    """Blob by path."""
    messages: list[str] = field(default_factory=list)


class HubServer:
    """Start with `with HubServer() as hub`; `hub.url` is its endpoint."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.uploads: list[str] = []
        """LFS blobs whose content was sent, in order."""
        self.tells_commits = True
        """A mirror may not."""
        self.lock = threading.RLock()

    def __enter__(self) -> HubServer:
        hub = self

        class Bound(_Handler):
            server_state = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fail(self, method: str, path: str, status: int, *, times: int = 1, skip: int = 0, after: bool = False) -> None:
        """Let `times` requests that match fail, after `skip` that pass. 0 and -1: see `Fault.status`."""
        self.faults.append(Fault(method, path, status, times, skip, after))

    def files(self, repo: str, ref: str = "main") -> dict[str, bytes]:
        """The files of a branch."""
        found = self.repos[repo]
        return {path: self.blobs[blob] for path, blob in found.commits[found.refs[ref]].items()}

    def fault_for(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.method == method and re.search(fault.path, path) and fault.times > 0:
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def commit(self, repo: Repo, ref: str, files: Files, message: str) -> str:
        oid = hashlib.sha1(f"{len(repo.messages)}{sorted(files.items())}{message}".encode()).hexdigest()
        repo.commits[oid], repo.refs[ref] = files, oid
        repo.messages.append(message)
        return oid

    def upload(self, repo: str, files: dict[str, bytes], ref: str = "main") -> str:
        """Commit large files to a repository, made where it is missing; the commit's id."""
        found = self.repos.setdefault(repo, Repo(private=False))
        return self.commit(found, ref, {path: self.store(data, lfs=True) for path, data in files.items()}, "upload")

    def store(self, content: bytes, *, lfs: bool) -> str:
        header = b"" if lfs else f"blob {len(content)}\0".encode()
        name = hashlib.sha256(content).hexdigest() if lfs else hashlib.sha1(header + content).hexdigest()
        self.blobs[name] = content
        return name


class _Answer(Exception):
    """What a handler answers instead of returning."""

    def __init__(self, status: int, body: Any = None, code: str = "", text: str = "") -> None:
        self.status, self.body, self.code, self.text = status, body, code, text


class _Handler(BaseHTTPRequestHandler):
    server_state: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve("GET")

    def do_HEAD(self) -> None:
        self._serve("HEAD")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self, method: str) -> None:
        hub = self.server_state
        address = urlsplit(self.path)
        path, self.query = unquote(address.path), parse_qs(address.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub.requests.append((method, path))
        fault = hub.fault_for(method, path)
        self.cut = fault is not None and fault.status < 0
        if fault is not None and not fault.after and fault.status >= 0:
            self._fail(fault)
            return
        try:
            with hub.lock:
                status, answer, headers = self._route(method, path, body)
        except _Answer as found:
            status, answer = found.status, json.dumps(found.body or {"error": found.text}).encode()
            headers = {"X-Error-Code": found.code, "X-Error-Message": found.text, "Content-Type": "application/json"}
        if fault is not None and fault.after:
            self._fail(fault)
            return
        self._send(status, answer, headers)

    def _fail(self, fault: Fault) -> None:
        if fault.status == 0:
            self._hang_up()
            return
        text = {401: "Invalid credentials in Authorization header"}.get(fault.status, f"made to fail ({fault.status})")
        body = json.dumps({"error": text}).encode()
        code = "EntryNotFound" if fault.status == 404 and "/resolve/" in self.path else ""
        headers = {"X-Error-Code": code, "X-Error-Message": text, "Content-Type": "application/json"}
        self._send(fault.status, body, headers)

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.cut and len(body) > 1:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self._hang_up()
            return
        self.wfile.write(body)

    # Routes ---------------------------------------------------------------------------------------------------------

    def _route(self, method: str, path: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        for pattern, verb, handler in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and verb in (method, "ANY"):
                answer = handler(self, body, *match.groups())
                if isinstance(answer, tuple):
                    return answer
                return 200, json.dumps(answer).encode(), {"Content-Type": "application/json"}
        raise _Answer(404, code="", text=f"no such endpoint: {method} {path}")

    def _token(self) -> str:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in (WRITER, READER):
            raise _Answer(401, text="Invalid credentials in Authorization header")
        return token

    def _repo(self, name: str, *, write: bool = False) -> Repo:
        token = self._token()
        repo = self.server_state.repos.get(name)
        if repo is None or (repo.private and not token):
            raise _Answer(404 if token else 401, code="RepoNotFound", text="Repository not found")
        if write and token != WRITER:
            raise _Answer(403, text="You have read access only")
        if repo.gated:
            raise _Answer(403, code="GatedRepo", text="Access to this repository is restricted")
        return repo

    @staticmethod
    def _commit_of(repo: Repo, revision: str) -> str:
        oid = repo.refs.get(revision, revision)
        if oid not in repo.commits:
            raise _Answer(404, code="RevisionNotFound", text="Invalid rev id: " + revision)
        return oid

    def _whoami(self, body: bytes) -> Any:
        if not self._token():
            raise _Answer(401, text="Invalid credentials in Authorization header")
        return {"name": "owner", "type": "user", "auth": {"type": "access_token"}}

    def _create(self, body: bytes) -> Any:
        token, asked = self._token(), json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        url = f"{self.server_state.url}/datasets/{name}"
        if token != WRITER:
            raise _Answer(403 if token else 401, text="You don't have the rights to create a dataset here")
        if name in self.server_state.repos:
            raise _Answer(409, {"error": "You already created this dataset repo", "url": url})
        repo = self.server_state.repos[name] = Repo(private=asked.get("visibility") == "private")
        attributes = self.server_state.store(b"*.parquet filter=lfs\n", lfs=False)
        self.server_state.commit(repo, "main", {".gitattributes": attributes}, "initial commit")
        return {"url": url}

    def _info(self, body: bytes, name: str, revision: str | None = None) -> Any:
        repo = self._repo(name)
        oid = self._commit_of(repo, revision or "main")
        files = [{"rfilename": path} for path in sorted(repo.commits[oid])]
        about = {"id": name, "sha": oid, "private": repo.private, "siblings": files, "tags": [], "downloads": 0}
        return about | {"gated": False, "disabled": False, "likes": 0}

    def _branch(self, body: bytes, name: str, branch: str) -> Any:
        repo = self._repo(name, write=True)
        if branch in repo.refs:
            raise _Answer(409, text="Reference already exists")
        repo.refs[branch] = repo.refs["main"]
        return {}

    def _preupload(self, body: bytes, name: str, revision: str) -> Any:
        repo = self._repo(name, write=True)
        there = repo.commits[self._commit_of(repo, revision)]
        return {
            "files": [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".parquet") else "regular",
                    "shouldIgnore": False,
                    "oid": there.get(file["path"]),
                }
                for file in json.loads(body)["files"]
            ]
        }

    def _batch(self, body: bytes, name: str) -> Any:
        self._repo(name, write=True)
        objects = []
        for asked in json.loads(body)["objects"]:
            url = f"{self.server_state.url}/lfs/{asked['oid']}"
            actions = {"upload": {"href": url}, "verify": {"href": f"{url}/verify"}}
            there = asked["oid"] in self.server_state.blobs
            objects.append(asked if there else asked | {"actions": actions})
        return {"transfer": "basic", "objects": objects}

    def _upload(self, body: bytes, oid: str) -> Any:
        if hashlib.sha256(body).hexdigest() != oid:
            raise _Answer(400, text="the content is not what its name says")
        self.server_state.blobs[oid] = body
        self.server_state.uploads.append(oid)
        return {}

    def _verify(self, body: bytes, oid: str) -> Any:
        if oid not in self.server_state.blobs:
            raise _Answer(404, text="no such object")
        return {}

    def _commit(self, body: bytes, name: str, revision: str) -> Any:
        repo = self._repo(name, write=True)
        files = dict(repo.commits[self._commit_of(repo, revision)])
        summary = ""
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            match entry["key"]:
                case "header":
                    summary = value["summary"]
                case "file":
                    files[value["path"]] = self.server_state.store(base64.b64decode(value["content"]), lfs=False)
                case "lfsFile":
                    assert value["oid"] in self.server_state.blobs
                    files[value["path"]] = value["oid"]
                case "deletedFile":
                    del files[value["path"]]
        url = f"{self.server_state.url}/datasets/{name}"
        if "create_pr" in self.query:
            number = sum(ref.startswith("refs/pr/") for ref in repo.refs) + 1
            oid = self.server_state.commit(repo, f"refs/pr/{number}", files, summary)
            return {
                "commitUrl": f"{url}/commit/{oid}",
                "commitOid": oid,
                "pullRequestUrl": f"{url}/discussions/{number}",
            }
        oid = self.server_state.commit(repo, revision, files, summary)
        return {"commitUrl": f"{url}/commit/{oid}", "commitOid": oid, "pullRequestUrl": None}

    def _entries(self, repo: Repo, oid: str) -> list[dict[str, Any]]:
        files = repo.commits[oid]
        folders = sorted({"/".join(parts[:n]) for p in files if (parts := p.split("/")) for n in range(1, len(parts))})
        found: list[dict[str, Any]] = [
            {"type": "directory", "oid": hashlib.sha1(folder.encode()).hexdigest(), "size": 0, "path": folder}
            for folder in folders
        ]
        for path, blob in sorted(files.items()):
            size = len(self.server_state.blobs[blob])
            entry: dict[str, Any] = {"type": "file", "oid": blob[:40], "size": size, "path": path}
            if len(blob) == 64:
                entry["lfs"] = {"oid": blob, "size": size, "pointerSize": 134}
            found.append(entry)
        return found

    def _tree(self, body: bytes, name: str, revision: str, folder: str | None = None) -> Any:
        repo = self._repo(name)
        entries = self._entries(repo, self._commit_of(repo, revision))
        start = f"{folder}/" if folder else ""
        below = [entry for entry in entries if entry["path"].startswith(start)]
        if folder and not below:
            raise _Answer(404, code="EntryNotFound", text="no such folder")
        if self.query.get("recursive", ["False"])[0].lower() != "true":
            below = [entry for entry in below if "/" not in entry["path"].removeprefix(start)]
        return below

    def _paths_info(self, body: bytes, name: str, revision: str) -> Any:
        repo = self._repo(name)
        asked = json.loads(body)["paths"] if body[:1] == b"{" else parse_qs(body.decode())["paths"]
        wanted = {path.strip("/") for path in ([asked] if isinstance(asked, str) else asked)}
        return [entry for entry in self._entries(repo, self._commit_of(repo, revision)) if entry["path"] in wanted]

    def _resolve(self, body: bytes, name: str, revision: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        repo = self._repo(name)
        oid = self._commit_of(repo, revision)
        blob = repo.commits[oid].get(path)
        if blob is None:
            raise _Answer(404, code="EntryNotFound", text="Entry not found")
        content = self.server_state.blobs[blob]
        headers = {
            "X-Repo-Commit": oid if self.server_state.tells_commits else "",
            "ETag": f'"{blob}"',
            "Accept-Ranges": "bytes",
        }
        if len(blob) == 64:
            headers |= {"X-Linked-Etag": f'"{blob}"', "X-Linked-Size": str(len(content))}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not asked:
            return 200, content, headers | {"Content-Length": str(len(content))}
        start, end = int(asked[1]), int(asked[2] or len(content) - 1)
        if start >= len(content):
            return 416, b"", headers | {"Content-Range": f"bytes */{len(content)}"}
        headers["Content-Range"] = f"bytes {start}-{min(end, len(content) - 1)}/{len(content)}"
        return 206, content[start : end + 1], headers


_NAME = r"([^/]+/[^/]+)"
_REVISION = r"((?:refs/(?:pr|convert)/)?[^/]+)"
_ROUTES: tuple[tuple[str, str, Any], ...] = (
    (r"/api/whoami-v2", "GET", _Handler._whoami),
    (r"/api/repos/create", "POST", _Handler._create),
    (r"/api/validate-yaml", "POST", lambda handler, body: {"errors": [], "warnings": []}),
    (rf"/api/datasets/{_NAME}", "GET", _Handler._info),
    (rf"/api/(?:datasets|models)/{_NAME}/revision/{_REVISION}", "GET", _Handler._info),
    (rf"/api/datasets/{_NAME}/branch/(.+)", "POST", _Handler._branch),
    (rf"/api/datasets/{_NAME}/preupload/{_REVISION}", "POST", _Handler._preupload),
    (rf"/api/datasets/{_NAME}/commit/{_REVISION}", "POST", _Handler._commit),
    (rf"/api/(?:datasets|models)/{_NAME}/tree/{_REVISION}", "GET", _Handler._tree),
    (rf"/api/datasets/{_NAME}/tree/{_REVISION}/(.+)", "GET", _Handler._tree),
    (rf"/api/datasets/{_NAME}/paths-info/{_REVISION}", "POST", _Handler._paths_info),
    (rf"/datasets/{_NAME}\.git/info/lfs/objects/batch", "POST", _Handler._batch),
    (r"/lfs/([0-9a-f]{64})", "PUT", _Handler._upload),
    (r"/lfs/([0-9a-f]{64})/verify", "POST", _Handler._verify),
    (rf"(?:/datasets)?/{_NAME}/resolve/{_REVISION}/(.+)", "ANY", _Handler._resolve),
)
