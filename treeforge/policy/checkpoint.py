"""A model in Hugging Face's format, as vLLM takes it: where it lies, what it is, its tokenizer and chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from treeforge.config import PolicyConfig, StepsConfig
from treeforge.errors import ConfigError, MissingExtraError
from treeforge.policy.convert import converted_dir
from treeforge.policy.hub import hub_file
from treeforge.policy.models import MODELS
from treeforge.policy.prompts import QUESTION

_PLACEHOLDER = "[[treeforge-question]]"  # braces mean something to templates
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_MEGABYTE = 1 << 20
_MOST_WORDS = 300


def model_source(model: str) -> str:
    """What vLLM is given for `policy.model`: a folder, or a Hub name unchanged.

    A name of our registry stands for what `treeforge models convert` made of it. Raises `ConfigError` for a GGUF file
    and for a registry name that was not converted.
    """
    if hub_file(model):
        raise ConfigError(
            f"policy.model: vLLM takes a Hub name as OWNER/NAME; {model} is a GGUF file, of which "
            "`treeforge models convert NAME --out FOLDER` makes a folder for it"
        )
    path = Path(model).expanduser()
    if model in MODELS and not path.is_dir():
        folder = converted_dir(model)
        if not (folder / "config.json").exists():
            raise ConfigError(
                f"policy.model: vLLM does not read '{model}' as it is (GGUF); make a folder of it with "
                f"`treeforge models convert {model}`"
            )
        return str(folder)
    if path.suffix == ".gguf" or path.is_file():
        raise ConfigError(
            f"policy.model: vLLM takes a folder in Hugging Face's format or a Hub name, not the file {path.name}; make "
            "a folder of it with `treeforge models convert FILE`"
        )
    if path.is_dir():
        return str(path)
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ConfigError(f"policy.model: there is no folder {model}")
    return model


class Checkpoint:
    """Tokenizer, chat template and identity of a model. Making one loads the tokenizer, not the weights."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        """`options`: vLLM's engine arguments, of which `tokenizer` and the revisions count here.

        Raises `MissingExtraError` without transformers and `ConfigError` where model or tokenizer cannot be read.
        """
        try:
            import transformers
        except ImportError:
            raise MissingExtraError("The vllm policy", "vllm") from None
        self.source = model_source(model)
        self.name = Path(model).name if Path(self.source).is_dir() else model
        where = str(options.get("tokenizer") or self.source)
        revision = options.get("tokenizer_revision") or (options.get("revision") if where == self.source else None)
        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
                where, revision=revision, trust_remote_code=bool(options.get("trust_remote_code"))
            )
            config = transformers.AutoConfig.from_pretrained(
                self.source,
                revision=options.get("revision"),
                trust_remote_code=bool(options.get("trust_remote_code")),
            )
        except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
            raise ConfigError(
                f"policy.model: {model!r} cannot be read as a model in Hugging Face's format: {_first_line(error)}"
            ) from error
        commit = getattr(config, "_commit_hash", None)
        self.origin = {"revision": commit} if commit else {"weights": weights_digest(Path(self.source))}
        """The Hub's commit, or `weights_digest` of a folder."""
        self.tokenizer_digest = self._digest()

    @property
    def fast(self) -> Any:
        """The `tokenizers.Tokenizer`; None where the tokenizer is written in Python."""
        return getattr(self._tokenizer, "backend_tokenizer", None)

    def encode(self, text: str, first: bool) -> list[int]:
        """Token ids of a text; `first`: it starts a prompt, with the special tokens that the model wants there."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=first)
        return ids

    def composes(self) -> bool:
        """A text that is tokenised in two parts, cut behind a line end, reads as the same text."""
        parts = self.encode("One.\n", False) + self.encode("Two = 2", False)
        return bool(self._tokenizer.decode(parts) == "One.\nTwo = 2")

    def as_completion(self, steps: StepsConfig) -> StepsConfig:
        """A step format whose prompts are plain texts: a chat's have the model's own template around the question.

        The template's text for an assistant's message that is to be continued is this text with that message behind it,
        so that plain concatenation gives every prompt of a run. Raises `ConfigError` where the template does not fit.
        """
        import msgspec

        if steps.template != "chat":
            return steps
        prompt = self._chat_prompt(steps)
        bos = self._tokenizer.bos_token
        # A prompt's first token is added when it is tokenised; in the text it would be there twice.
        if bos and prompt.startswith(bos) and self.encode("x", True)[:1] == [self._tokenizer.bos_token_id]:
            prompt = prompt[len(bos) :]
        return msgspec.structs.replace(steps, template="completion", prompt=prompt)

    def _chat_prompt(self, steps: StepsConfig) -> str:
        messages = [{"role": "system", "content": steps.system}] if steps.system else []
        messages.append({"role": "user", "content": steps.prompt.replace(QUESTION, _PLACEHOLDER)})
        if not self._tokenizer.chat_template:
            raise ConfigError(
                f"the step format '{steps.preset}' is a chat, and {self.name} has no chat template: a base model? "
                "Use a completion preset, or the model's instruct version"
            )
        try:
            prompt = str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template is a program: it may raise anything
            raise ConfigError(
                f"the step format '{steps.preset}' does not fit {self.name}'s chat template: {_first_line(error)}"
            ) from error
        if prompt.count(_PLACEHOLDER) != 1:
            raise ConfigError(f"{self.name}'s chat template leaves the user's message out; use a completion template")
        if steps.system and steps.system.strip() not in prompt:
            raise ConfigError(f"{self.name}'s chat template leaves the system message out; set steps.system to ''")
        return prompt.replace(_PLACEHOLDER, QUESTION)

    def _digest(self) -> str:
        """Of vocabulary, merges, special tokens and chat template: all that makes token ids of a prompt."""
        h = sha256()
        backend = self.fast
        described = backend.to_str() if backend is not None else json.dumps(self._tokenizer.get_vocab(), sort_keys=True)
        for part in (described, json.dumps(self._tokenizer.chat_template, sort_keys=True)):
            h.update(part.encode("utf-8", "surrogatepass"))
            h.update(b"\0")
        return h.hexdigest()[:32]


def model_identity(checkpoint: Checkpoint, config: PolicyConfig, version: str) -> dict[str, Any]:
    """What determines the answers of a model under vLLM, in this process or in replicas: all but the machine's half."""
    identity: dict[str, Any] = {
        "backend": "vllm",
        "model": checkpoint.name,
        **checkpoint.origin,
        "tokenizer": checkpoint.tokenizer_digest,
        "engine": version,
        "options": dict(config.engine),
    }
    if config.adapter:
        identity["adapter"] = weights_digest(Path(config.adapter).expanduser())
    return identity


def weights_digest(folder: Path) -> str:
    """A digest that tells a model's weights from others': name, size, first and last MiB of each file, and the config.

    Not of every byte: a 70B model has 140 GB. Weights that were trained further differ in every tensor.
    """
    h = sha256()
    for file in sorted(folder.iterdir()):
        if file.name != "config.json" and file.suffix not in _WEIGHTS:
            continue
        size = file.stat().st_size
        h.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            h.update(stream.read(_MEGABYTE))
            stream.seek(max(0, size - _MEGABYTE))
            h.update(stream.read(_MEGABYTE))
    return h.hexdigest()[:32]


def adapter_rank(adapter: str) -> int:
    """The rank of a LoRA adapter in PEFT's format. Raises `ConfigError` where the folder holds none."""
    path = Path(adapter).expanduser() / "adapter_config.json"
    try:
        rank = json.loads(path.read_text(encoding="utf-8"))["r"]
        return int(rank)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"policy.adapter: {path} cannot be read ({_first_line(error)}); name the folder of a LoRA adapter "
            "in PEFT's format"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:_MOST_WORDS]
