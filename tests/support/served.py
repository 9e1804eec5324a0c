"""A `ServerPolicy` that talks to misbehaving servers, and requests for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from support.misbehaving import MisbehavingServer

from treeforge.config import SamplingConfig, StepsConfig
from treeforge.policy.base import Mode, Request
from treeforge.policy.server import ServerPolicy
from treeforge.problem import make_problem

COMPLETION = StepsConfig(
    prompt="Question: {question}\nAnswer:\n",
    delimiter="\n",
    stop=("\n\n", "Question:"),
    answer_markers=("The answer is",),
)
CHAT = msgspec.structs.replace(COMPLETION, template="chat", system="Be brief.")
SAMPLING = SamplingConfig(temperature=0.8, max_tokens=64, max_step_tokens=32)
STEP = "So 17 + 25 = 42\n"


def request(mode: Mode = "rollout", n: int = 4, prefix: str = "", seed: int = 5, tree: int = 0) -> Request:
    problem = make_problem("What is 17 + 25?", "42")
    return Request(problem=problem, prefix=prefix, n=n, mode=mode, seed=seed, digest=b"", tree=tree)


def make(*servers: MisbehavingServer | str, steps: StepsConfig = COMPLETION, **options: Any) -> ServerPolicy:
    urls = tuple(server if isinstance(server, str) else server.url for server in servers)
    options = {"model": "world", "sampling": SAMPLING, "api_key": None, "timeout": 10.0, "concurrency": 8} | options
    return ServerPolicy(steps=steps, servers=urls, **options)


@asynccontextmanager
async def started(*servers: MisbehavingServer | str, **options: Any) -> AsyncIterator[ServerPolicy]:
    policy = make(*servers, **options)
    try:
        await policy.start()
        for server in servers:
            if isinstance(server, MisbehavingServer):
                server.forget()
        yield policy
    finally:
        await policy.close()
