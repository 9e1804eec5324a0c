"""What stands beside a trained model's weights: `reward.json`, the card, the reliability diagram."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from treeforge.configuration import differences, to_dict
from treeforge.errors import ConfigError, DataError, MissingExtraError
from treeforge.reward.base import Task
from treeforge.reward.measures import Measures
from treeforge.reward.prompts import PROMPT
from treeforge.reward.rows import Counts
from treeforge.reward.settings import BaseTraining, Head
from treeforge.store.files import atomic_file
from treeforge.store.lock import LOCK, take_lock

VERSION = 1
STARTED = "training.json"
CHECKPOINTS = "checkpoints"
DONE = "reward.json"
POLICY = "policy.json"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """`reward.json`: how to use a trained reward model, and where it comes from."""

    version: int = VERSION
    task: Task
    head: Head
    prompt: str = PROMPT
    """The format of the texts it was trained on (`treeforge.reward.prompts`)."""
    window: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    """Tokens."""
    base: str
    """The model it was trained from."""
    settings: dict[str, Any]
    files: dict[str, str]
    """SHA-256 of each file of training rows."""
    train: Counts
    validation: Counts
    truncated: int
    """Training rows that were cut to the window."""
    steps: int
    """Of the optimiser."""
    kept_step: int = 0
    """The one whose weights these are; 0 where that was not noted."""
    measures: Measures
    """On the held-out problems."""

    def figures(self) -> list[tuple[str, float | None]]:
        """The measures with their names; None where one is not defined."""
        return [
            ("AUC", self.measures.auc),
            ("accuracy at 0.5", self.measures.accuracy),
            ("balanced accuracy", self.measures.balanced_accuracy),
            ("log loss (nats)", self.measures.log_loss),
            ("expected calibration error", self.measures.calibration_error),
            ("first-error F1", self.measures.first_error_f1),
        ]


def write_saved(out: Path, saved: Saved) -> None:
    """Write `reward.json` and, before it, the card and its diagram: a folder with the former is whole."""
    write_text(out / "reliability.svg", diagram(saved.measures))
    write_text(out / "README.md", card(saved))
    write_text(out / DONE, msgspec.json.format(msgspec.json.encode(saved), indent=2).decode() + "\n")


def read_saved(folder: Path) -> Saved | None:
    """What stands in a folder; None where there is none. Raises `DataError` for one of another kind or version, and
    `ConfigError` for a model that was trained for another prompt format."""
    path = folder / DONE
    if not path.exists():
        return None
    try:
        data = msgspec.json.decode(path.read_bytes())
        version = data.get("version") if isinstance(data, dict) else None
        if version == VERSION and data.get("prompt") != PROMPT:
            raise ConfigError(
                f"{folder} was trained for the prompt format {str(data.get('prompt'))[:80]!r}, and its scores of texts "
                f"in another one ({PROMPT}) would mean nothing; use the treeforge that trained it, or train it again"
            )
        if version != VERSION:
            raise DataError(f"is of version {version!r}, not {VERSION}", path=path, fix="Train it again")
        return msgspec.convert(data, Saved)
    except (msgspec.DecodeError, msgspec.ValidationError, OSError, RecursionError) as error:
        raise DataError(f"is damaged: {error}", path=path, fix="Train the model again") from None


@contextmanager
def begin(out: Path, config: BaseTraining, files: Mapping[str, str], done: str) -> Iterator[None]:
    """Start or go on with a training in `out`, which no other process does meanwhile; `done`: the file that ends it.

    A training that cannot begin (a base that is no model, a library that is missing) leaves nothing there, so that the
    corrected command may name the same folder. Raises `ConfigError` where another training stands there,
    `RunLockedError` where one is at work.
    """
    _start(out, config, files)
    if (out / done).exists():
        yield
        return
    with take_lock(out):
        _start(out, config, files)
        try:
            yield
        except (ConfigError, MissingExtraError):
            _take_back(out)
            raise


def _start(out: Path, config: BaseTraining, files: Mapping[str, str]) -> None:
    now = {"settings": to_dict(config), "files": dict(files)}
    path = out / STARTED
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name another --out, a folder")
    if path.exists():
        try:
            before = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (msgspec.DecodeError, OSError, RecursionError):
            raise ConfigError(
                f"{path} is damaged, and does not say what training stands there; name another --out"
            ) from None
        changed = differences(before, now)
        if changed:
            lines = "\n".join(f"  {key}: {old!r} there, {new!r} now" for key, (old, new) in changed.items())
            raise ConfigError(f"{out} holds a training with other settings or data; name another --out:\n{lines}")
        return
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is there already and holds no training; name another --out")
    write_text(path, msgspec.json.format(msgspec.json.encode(now), indent=2).decode() + "\n")


def _take_back(out: Path) -> None:
    """Remove the beginning of a training of which nothing is there yet."""
    with suppress(OSError):
        if {path.name for path in out.iterdir()} <= {STARTED, LOCK}:
            (out / STARTED).unlink(missing_ok=True)
            (out / LOCK).unlink(missing_ok=True)
            out.rmdir()


def finish(out: Path) -> None:
    """Remove what only an unfinished training needs."""
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    for path in (*out.glob("reference-*.npy"), out / LOCK):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def card(saved: Saved) -> str:
    """The model card, in Markdown."""
    measures, train, held = saved.measures, saved.train, saved.validation
    kinds = {
        "orm": "whole solutions (outcome reward model)",
        "prm": "single steps (process reward model)",
        "hrm": "single steps and pairs of consecutive steps (Hierarchical Reward Model, arXiv 2503.13551)",
    }
    lines = [
        "---",
        *([f"base_model: {_scalar(saved.base)}"] if "/" in saved.base and not saved.base.startswith("/") else []),
        "library_name: transformers",
        "tags:",
        "- reward-model",
        "- treeforge",
        "---",
        "",
        f"# A reward model of {kinds[saved.task]}",
        "",
        f"Trained by treeforge from `{saved.base}`; it reads a question, the reasoning so far and what is to be judged "
        f"(`{saved.prompt}`), at most {saved.window:,} tokens, and gives the chance that the last step is right.",
        "",
        "    from treeforge.reward.score import load_reward_model",
        '    load_reward_model("FOLDER").score("1 + 1 = ?", ["1 + 1 = 2.\\n", "The answer is 2."])',
        "",
        "## On held-out problems",
        "",
        f"{held.problems:,} problems that the training did not see. Not defined figures: one class only, or no whole "
        "solution.",
        "",
        "| | |",
        "| --- | --- |",
        f"| rows | {measures.rows:,}, {measures.right:,} of them right |",
        *(f"| {name} | {_figure(value)} |" for name, value in saved.figures()),
        "",
        "![Reliability diagram: the share of right rows by the chance that the model gives](reliability.svg)",
        "",
        "## Data",
        "",
        f"{train.rows:,} rows of {train.problems:,} problems, {train.right:,} of them right; {saved.truncated:,} were "
        f"cut to the window. {saved.steps:,} steps of the optimiser{_kept(saved)}.",
        "",
        *(f"- `{name}` {digest}" for name, digest in saved.files.items()),
        "",
        "## Settings",
        "",
        *(f"- `{name}`: `{value}`" for name, value in saved.settings.items()),
        "",
    ]
    return "\n".join(lines)


def _kept(saved: Saved) -> str:
    if saved.kept_step in (0, saved.steps):
        return ""
    return f"; the weights are those of step {saved.kept_step:,}, where the held-out loss was lowest"


def diagram(measures: Measures) -> str:
    """The reliability diagram as SVG: a circle a tenth, its area the rows; on the diagonal is right."""
    side, edge = 320, 40
    most = max((bin_.rows for bin_ in measures.reliability), default=1)
    circles = [
        f'<circle cx="{edge + bin_.chance * side:.1f}" cy="{edge / 2 + (1 - bin_.right) * side:.1f}" '
        f'r="{3 + 9 * (bin_.rows / most) ** 0.5:.1f}" fill="#0072b2" fill-opacity=".75">'
        f"<title>{bin_.rows:,} rows: {bin_.chance:.3f} said, {bin_.right:.3f} right</title></circle>"
        for bin_ in measures.reliability
    ]
    width, height = side + 1.5 * edge, side + 1.5 * edge
    text = 'font-family="sans-serif" font-size="12" fill="#444"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
            f'width="{width:g}" height="{height:g}"><title>Reliability diagram</title>',
            f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
            f'<rect x="{edge}" y="{edge / 2:g}" width="{side}" height="{side}" fill="none" stroke="#bbb"/>',
            f'<path d="M{edge} {side + edge / 2:g}L{edge + side} {edge / 2:g}" stroke="#999" stroke-dasharray="4 4"/>',
            *circles,
            f'<text x="{edge + side / 2:g}" y="{height - 8:g}" text-anchor="middle" {text}>chance that is said</text>',
            f'<text x="14" y="{side / 2:g}" text-anchor="middle" {text} transform="rotate(-90 14 {side / 2:g})">'
            "share that is right</text>",
            f'<text x="{edge}" y="{side + edge:g}" text-anchor="middle" {text}>0</text>',
            f'<text x="{edge + side}" y="{side + edge:g}" text-anchor="middle" {text}>1</text>',
            "</svg>\n",
        ]
    )


def _figure(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.4f}"


def _scalar(text: str) -> str:
    return msgspec.json.encode(text).decode()


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically."""
    with atomic_file(path) as stream:
        stream.write(text.encode())
