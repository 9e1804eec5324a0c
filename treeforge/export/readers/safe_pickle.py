"""Pickles of one class, read so that nothing but a plain node can come out of them.

A pickle is a program. Before it runs, every instruction is looked at: only those that make numbers, texts, lists and
dictionaries, and instances of one class, are let through. None of them calls a function, and the class is ours.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

from treeforge.errors import DataError
from treeforge.store.files import refuse_pointer

MAX_BYTES = 2**27
"""The largest pickle that is read."""
MAX_INSTRUCTIONS = 8_000_000
"""The most instructions of one: each may make an object of some 60 bytes."""

_ALLOWED = {
    "PROTO", "FRAME", "STOP", "MARK", "POP", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "BINGET", "LONG_BINGET",
    "GET", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT",
    "BINFLOAT", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "LIST", "APPEND",
    "APPENDS", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_TUPLE", "GLOBAL", "STACK_GLOBAL", "NEWOBJ",
    "BUILD",
}  # fmt: skip
_FIX = "Only trees as the HRM authors' code pickles them can be read; get the file from a source that you trust"


class Node:
    """What a pickle's instances become: attributes and nothing else."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name.rpartition(".")[2] != "Node":
            raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:200])
        return Node


def load_node(path: Path) -> Node:
    """The node that a file holds. `DataError` (with the byte) for anything but a pickle of plain nodes."""
    refuse_pointer(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path, fix="Check the file") from None
    if len(content) > MAX_BYTES:
        raise DataError(f"is larger than {MAX_BYTES // 2**20} MiB", path=path, fix="One file holds one problem's tree")
    _look_through(content, path)
    try:
        found = _Unpickler(io.BytesIO(content)).load()
    except Exception as error:  # noqa: BLE001 - a damaged pickle can raise anything
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"is no pickle that can be read: {what}", path=path, fix=_FIX) from None
    if not isinstance(found, Node):
        raise DataError(f"holds a {type(found).__name__}, not a node", path=path, fix=_FIX)
    return found


def _look_through(content: bytes, path: Path) -> None:
    """Raise `DataError` unless every instruction is an allowed one."""
    byte = 0
    name: tuple[object, object] = (None, None)
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(content), start=1):
            byte = position or 0
            if count > MAX_INSTRUCTIONS:
                what = f"has more than {MAX_INSTRUCTIONS:,} instructions"
                raise DataError(what, path=path, fix="One file holds one problem's tree")
            asked = str(argument) if opcode.name == "GLOBAL" else None
            if opcode.name == "STACK_GLOBAL" and all(isinstance(part, str) for part in name):
                asked = " ".join(map(str, name))
            if asked is not None and asked.rpartition(" ")[2].rpartition(".")[2] != "Node":
                what = f"byte {byte}: it asks for {asked[:100]!r}"
                raise DataError(f"is refused; {what}", path=path, fix=_FIX)
            if opcode.name not in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
                name = (name[1], argument)
            if opcode.name not in _ALLOWED:
                what = f"byte {byte}: the instruction {opcode.name} can do more than make a node"
                raise DataError(f"is refused; {what}", path=path, fix=_FIX)
            # The unpickler keeps its memo in an array: a number beyond the file would only make that huge.
            if opcode.name.endswith("PUT") and int(argument or 0) > len(content):
                raise DataError(f"is damaged at byte {byte}", path=path, fix=_FIX)
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        what = " ".join(str(error).split())[:200]
        raise DataError(f"is no whole pickle (after byte {byte}): {what}", path=path, fix=_FIX) from None
