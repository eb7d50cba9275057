"""Calls of resident actors that type checkers must accept or reject."""

from pathlib import Path

import pytest
from tests.actors.test_typing import complaints

PRELUDE = """
import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import assert_type

import numpy as np
import callboard as cb

class Count(cb.Request["Embedder", int]):
    text: str
class Reset(cb.Msg["Embedder"]): ...
class Other(cb.Request["Somebody", int]): ...
class Somebody: ...

class Embedder(cb.ResidentActor):
    supervision = cb.OneForOne(max_restarts=1, within=10.0)

    def __init__(self, path: str, *, width: int = 8) -> None:
        self.width = width

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx

    def embed(self, texts: list[str], scale: float = 1.0) -> list[np.ndarray]:
        return []

    def lend(self, weights: cb.In) -> cb.GpuRef:
        return self.ctx.ref(weights)

    def tokens(self, prompt: str, *, top: int = 1) -> Iterator[str]:
        yield prompt

    def generated(self) -> Generator[int, None, str]:
        yield 1
        return ""

    def iterated(self) -> Iterable[bytes]:
        yield b""

    async def later(self) -> AsyncIterator[float]:
        yield 1.0

    async def later_generated(self) -> AsyncGenerator[str, None]:
        yield ""

    async def later_iterated(self) -> AsyncIterable[int]:
        yield 1

    async def soon(self, n: int) -> list[str]:
        return [""] * n

    async def soon_lend(self) -> cb.GpuRef:
        return self.ctx.ref(np.ones(3))

    @Count.handles
    def count(self, m: Count) -> int:
        return len(m.text)

    @Reset.handles
    def reset(self, m: Reset) -> None: ...

class Derived(Embedder): ...
"""

GOOD = """
async def good(dev: cb.Device, x: cb.GpuRef) -> None:
    emb = dev.actor_of(cb.Props(Embedder, "weights", width=4), name="emb")
    a: cb.ResidentRef[Embedder] = emb
    vectors: list[np.ndarray] = await emb.call(Embedder.embed, ["hello"])
    reply: cb.Reply[list[np.ndarray]] = emb.call(Embedder.embed, ["hello"], scale=2.0)
    lent: cb.GpuRef = await emb.call(Embedder.lend, x)
    n: int = await emb.ask(Count(text="a"))
    emb.tell(Reset())
    emb.tell(Count(text="b"))
    await emb.with_timeout(5.0).call(Embedder.embed, [])
    waited = await dev.actor_of(cb.Props(Embedder, "weights"), wait=True)
    assert_type(waited, cb.ResidentRef[Embedder])
    assert_type(dev.actor_of(cb.Props(Embedder, "weights"), wait=False), cb.ResidentRef[Embedder])
    starting = asyncio.create_task(dev.actor_of(cb.Props(Embedder, "weights"), "emb", wait=True))
    assert_type(await starting, cb.ResidentRef[Embedder])
    ready: cb.ResidentRef[Embedder] = await emb.ready(timeout=5.0)
    state: cb.ResidentState = emb.state
    cause: Exception | None = emb.cause
    if emb.state == "ready" or emb.with_timeout(5.0).state == "stopped":
        await ready.call(Embedder.embed, [])
        assert emb.state != "stopped"
    stream: cb.Stream[str] = emb.stream(Embedder.tokens, "hello", top=3)
    async for token in stream.with_prefetch(2):
        word: str = token
    async with emb.with_timeout(5.0).stream(Embedder.generated) as numbers:
        n = await anext(numbers)
    chunks: list[bytes] = [chunk async for chunk in emb.stream(Embedder.iterated)]
    floats: list[float] = [x async for x in emb.stream(Embedder.later)]
    words: list[str] = [x async for x in emb.stream(Embedder.later_generated)]
    ints: list[int] = [x async for x in emb.stream(Embedder.later_iterated)]
    soon: list[str] = await emb.call(Embedder.soon, 3)
    lent = await emb.call(Embedder.soon_lend)
    derived = dev.actor_of(cb.Props(Derived, "weights"))
    b: cb.ResidentRef[Embedder] = derived
    await derived.call(Embedder.embed, [])

def good_sync(dev: cb.sync.Device) -> None:
    emb = dev.actor_of(cb.Props(Embedder, "weights", width=4), name="emb")
    words: list[str] = [token for token in emb.stream(Embedder.tokens, "hello", top=3).with_prefetch(2)]
    soon: list[str] = emb.call(Embedder.soon, 3)
    array: np.ndarray = emb.call(Embedder.soon_lend).get()
    floats: list[float] = list(emb.stream(Embedder.later))
"""

BAD = {
    "wrong type of an argument": "emb.call(Embedder.embed, [1])",
    "missing argument": "emb.call(Embedder.embed)",
    "unknown keyword": "emb.call(Embedder.embed, [], scaled=1.0)",
    "wrong type of a keyword": 'emb.call(Embedder.embed, [], scale="x")',
    "wrong type of the result": "r: int = await emb.call(Embedder.embed, [])",
    "host array where a device array is read": "emb.call(Embedder.lend, np.ones(3))",
    "method of another class": "emb.call(str.upper)",
    "method of a subclass": "emb.call(OnlyDerived.more)",
    "request of another actor": "emb.ask(Other())",
    "ask with a plain message": "emb.ask(Reset())",
    "missing field": "emb.ask(Count())",
    "missing constructor argument": "dev.actor_of(cb.Props(Embedder))",
    "wrong type of an argument of a stream": "emb.stream(Embedder.tokens, 1)",
    "unknown keyword of a stream": 'emb.stream(Embedder.tokens, "", prefetch=1)',
    "wrong type of an async result": "r3: int = await emb.call(Embedder.soon, 3)",
    "wrong type of an async argument": 'emb.call(Embedder.soon, "3")',
    "wrong type of an item": "async for x in emb.stream(Embedder.tokens, ''): r2: int = x",
    "no iterator": "emb.stream(Embedder.count)",
    "plain loop over a stream": "for x in emb.stream(Embedder.tokens, ''): pass",
    "wrong constructor argument": "dev.actor_of(cb.Props(Embedder, 3))",
    "a call before the wait": 'dev.actor_of(cb.Props(Embedder, "w"), wait=True).call(Embedder.embed, [])',
    "a wait for a ref": 'await dev.actor_of(cb.Props(Embedder, "w"))',
    "not a resident actor": "dev.actor_of(cb.Props(Somebody))",
}


@pytest.mark.typing
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers_accept_the_good_and_refuse_the_bad(checker: str, tmp_path: Path) -> None:
    pytest.importorskip(checker)
    for folder in ("good", "bad"):
        (tmp_path / folder).mkdir()
    good = tmp_path / "good" / "good_case.py"
    good.write_text(PRELUDE + GOOD)
    found, said = complaints(checker, good)
    assert found == set(), said
    text = PRELUDE + "\nclass OnlyDerived(Embedder):\n    def more(self) -> None: ...\n"
    text += "\nasync def bad(dev: cb.Device, emb: cb.ResidentRef[Embedder]) -> None:\n"
    lines = {}
    for name, line in BAD.items():
        lines[text.count("\n") + 1] = name
        text += f"    {line}\n"
    bad = tmp_path / "bad" / "bad_case.py"
    bad.write_text(text)
    found, said = complaints(checker, bad)
    accepted = [name for line, name in lines.items() if not found & {line, line + 1}]
    assert accepted == [], said
