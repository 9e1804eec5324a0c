"""Chat messages as columns: a list of {role, content}, what `apply_chat_template` takes."""

from __future__ import annotations

import pyarrow as pa

MESSAGES = pa.list_(pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())]))


def user(content: str) -> dict[str, str]:
    """A turn of the user."""
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    """A turn of the model."""
    return {"role": "assistant", "content": content}
