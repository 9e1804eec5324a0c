"""llama.cpp's server inside this process (`xllamacpp`): loading, completions, the model's own chat template.

Completions go straight into the native server, which batches them over its slots. What it offers over HTTP only (chat
template, token texts, copying a slot) is asked at its own loopback listener, which wants a key that only we know.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from treeforge.errors import ConfigError, MissingExtraError, PolicyError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.prompts import QUESTION

Chunk = dict[str, Any]
"""One event of a streamed completion: `choices` as OpenAI's, and llama.cpp's own fields under `__verbose`."""

_MOST_SLOTS = 64  # more gain nothing on a CPU and take memory: about 50 MB each for the default model
_LISTENER_SECONDS = 60.0
_STOP_CHECK_SECONDS = 0.1  # how often a completion that waits for slots asks whether it is still wanted
_PLACEHOLDER = "[[treeforge-question]]"  # braces mean something to templates


class StoppedError(Exception):
    """A completion was given up because its caller asked for that."""


class Engine:
    """A loaded model. Methods block and may be called from several threads at once."""

    def __init__(self, path: Path, *, slots: int, context: int, threads: int) -> None:
        """Load the model with `slots` sequences of `context` tokens each (less where the model was trained on less).

        Raises `MissingExtraError` without xllamacpp and `PolicyUnavailableError` where llama.cpp refuses the file.
        """
        xllamacpp = _import_xllamacpp()
        self.version = f"xllamacpp {xllamacpp.__version__}"
        self.slots = self._free = min(slots, _MOST_SLOTS)
        self._turn, self._freed = threading.Lock(), threading.Condition()
        self._key = secrets.token_hex(16)
        self._token_texts: dict[int, str] = {}
        # Copies of a slot pass through files; nothing else is written.
        self._files = tempfile.TemporaryDirectory(prefix="treeforge-")
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_parallel = self.slots
        parameters.n_ctx = self.slots * context
        parameters.cpuparams.n_threads = threads or _available_cores()
        parameters.verbosity = -1  # llama.cpp would write its log to our stderr
        # Flash attention, where the model and the device have it: 10 to 25% less time. It rounds by how the batch is
        # cut, so that a sample may differ when others run beside it; the journal is what makes a run reproducible.
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO
        parameters.fit_params = False  # the context must not depend on what memory happens to be free
        parameters.cache_ram_mib = 0  # up to 8 GB of old prompts otherwise
        parameters.api_keys = [self._key]
        parameters.cors_origins = ""
        parameters.ui = False
        parameters.n_threads_http = 2
        parameters.slot_save_path = self._files.name + os.sep
        try:
            self._server = xllamacpp.Server(parameters)
        except (RuntimeError, ValueError, MemoryError) as error:
            self._files.cleanup()
            raise PolicyUnavailableError(
                f"llama.cpp cannot load {path.name}: the file is damaged, or {self.version} does not know its kind, or "
                f"{self.slots} slots of {context} tokens do not fit in memory (machine.concurrency sets the slots)"
            ) from error
        self._address = urlsplit(self._server.listening_address)
        # A server that is closed before its loop runs waits for that loop for ever; one that has answered runs.
        with suppress(RequestFailedError):
            self.complete({"prompt": "a", "max_tokens": 1}, lambda: False)

    def close(self) -> None:
        """Free the model. No completion may be running."""
        self._server = None
        self._files.cleanup()

    def complete(self, body: dict[str, Any], stopped: Callable[[], bool]) -> list[Chunk]:
        """Stream a completion (fields as of llama.cpp's /v1/completions) and return its events, in order of arrival.

        `stopped` is asked while slots are waited for and at every event; once it is true the rest is given up and
        `StoppedError` raised. Raises `RequestFailedError` with the server's own words.
        """
        chunks: list[Chunk] = []
        held = self._take(body.get("n", 1), stopped)

        def receive(chunk: Chunk) -> bool:
            nonlocal held
            chunks.append(chunk)
            if held > 1 and _ended(chunk):
                held -= 1
                self._give(1)
            return stopped()

        try:
            # The native layer swallows what a callback raises, so the callback does nothing that could.
            self._server.handle_completions({**body, "stream": True, "verbose": True}, receive)
        finally:
            self._give(held)
        if stopped():
            raise StoppedError
        for chunk in chunks:
            if "__verbose" not in chunk:
                raise _failure(chunk)
        return chunks

    def _take(self, samples: int, stopped: Callable[[], bool]) -> int:
        """Wait until as many slots are free.

        llama.cpp would let a completion wait too, but asks whether it is still wanted only after its first token.
        """
        wanted = min(samples, self.slots)
        with self._turn, self._freed:  # one completion gathers slots at a time, so that small ones do not starve it
            while not stopped():
                if self._free >= wanted:
                    self._free -= wanted
                    return wanted
                self._freed.wait(_STOP_CHECK_SECONDS)
        raise StoppedError

    def _give(self, slots: int) -> None:
        with self._freed:
            self._free += slots
            self._freed.notify()

    def chat_prompt(self, system: str, user: str) -> str:
        """The model's own chat template around a user message, `{question}` in it kept: a completion prompt.

        The template's text for an assistant's message that is to be continued is this text with that message behind it,
        so that plain concatenation gives every prompt of a run.
        """
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": user.replace(QUESTION, _PLACEHOLDER)})
        prompt: str = self._post("/apply-template", {"messages": messages}).get("prompt", "")
        if _PLACEHOLDER not in prompt:
            raise ConfigError("the model's chat template leaves the user's message out; use a completion template")
        return prompt.replace(_PLACEHOLDER, QUESTION)

    def token_text(self, token: int) -> str:
        """The text of one token."""
        if token not in self._token_texts:
            self._token_texts[token] = self._post("/detokenize", {"tokens": [token]})["content"]
        return self._token_texts[token]

    def warm(self, head: str) -> None:
        """Evaluate the text that all prompts start with once, and copy it into every slot.

        Without this each slot evaluates it anew: on a CPU that takes as long as sampling as many tokens.
        """
        self.complete({"prompt": head, "max_tokens": 1, "id_slot": 0}, lambda: False)
        try:
            self._post("/slots/0?action=save", {"filename": "head"})
            for slot in range(1, self.slots):
                self._post(f"/slots/{slot}?action=restore", {"filename": "head"})
        except RequestFailedError:
            return  # a model whose state cannot be copied, or no room for the file: slower, nothing else
        finally:
            Path(self._files.name, "head").unlink(missing_ok=True)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        connection = http.client.HTTPConnection(
            self._address.hostname or "127.0.0.1", self._address.port, timeout=_LISTENER_SECONDS
        )
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            reply = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise PolicyUnavailableError(f"llama.cpp's own listener failed at {path}: {error}") from error
        finally:
            connection.close()
        if "error" in reply:
            raise _failure(reply)
        return reply


def _ended(chunk: Chunk) -> bool:
    native = chunk.get("__verbose")
    return isinstance(native, dict) and native.get("stop") is True


def _failure(chunk: Chunk) -> PolicyError:
    error = chunk.get("error", chunk)
    if not isinstance(error, dict) or "message" not in error:
        return PolicyUnavailableError("this version of xllamacpp answers in a form that treeforge does not know")
    if error.get("type") == "exceed_context_size_error":
        return RequestFailedError(
            f"the prompt has {error.get('n_prompt_tokens')} tokens, and a slot holds {error.get('n_ctx')}",
            retryable=False,
        )
    code = error.get("code")
    return RequestFailedError(f"llama.cpp: {error['message']}", retryable=not isinstance(code, int) or code >= 500)


def _import_xllamacpp() -> Any:
    try:
        with _passive_openmp():
            import xllamacpp
    except ImportError:
        raise MissingExtraError("The local policy", "local") from None
    return xllamacpp


@contextmanager
def _passive_openmp() -> Iterator[None]:
    """OpenMP reads its settings once, when it is loaded; ours must not become those of libraries loaded later.

    Its threads spin at every barrier by default. Where other processes want the same cores, each then burns the time
    that the other needs: measured with six busy neighbours on two cores, 7 times slower than threads that sleep.
    """
    name = "OMP_WAIT_POLICY"
    if name in os.environ:
        yield
        return
    os.environ[name] = "passive"
    try:
        yield
    finally:
        del os.environ[name]


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
