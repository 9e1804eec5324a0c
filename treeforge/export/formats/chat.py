"""Chat messages as columns: a list of {role, content}, what `apply_chat_template` takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_MESSAGE = pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())])
MESSAGES = pa.list_(_MESSAGE)


def messages(roles: Any, contents: Any) -> Any:
    """Arrow messages of Arrow texts."""
    return pa.StructArray.from_arrays([roles, contents.cast(pa.string())], fields=list(_MESSAGE))


def user(contents: Any) -> Any:
    """Chats of one turn of the user each; `contents`, Arrow texts."""
    return _single("user", contents)


def assistant(contents: Any) -> Any:
    """Chats of one turn of the model each; `contents`, Arrow texts."""
    return _single("assistant", contents)


def _single(role: str, contents: Any) -> Any:
    turns = messages(pa.repeat(pa.scalar(role), len(contents)), contents)
    return pa.ListArray.from_arrays(pa.array(np.arange(len(contents) + 1, dtype=np.int32)), turns, type=MESSAGES)
