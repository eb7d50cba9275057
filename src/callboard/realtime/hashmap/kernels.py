"""The ops of a hash map: what a CPU computes, and CUDA."""

from typing import Any

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.hashmap import cuda

__all__ = ["apply", "claim", "find", "rehash", "wipe"]

PACKAGE = "callboard.realtime.hashmap"


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


@kernel(
    "in query: u64[n, w], in keys: u64[s, w], inout tag: i32[s], out slot: i32[n], out order: i32[n], n: i32, w: i32,"
    "s: i32, how: i32",
    cuda=cuda.CLAIM,
    grid=lambda n: -(-n // 256),
    block=256,
)
def claim(query: Any, keys: Any, tag: Any, slot: Any, order: Any, how: int) -> None:
    """The slots of keys; see :func:`.plain.claim`."""
    _cpu().claim(query, keys, tag, slot, order, int(how))


@kernel(
    "in slots: i32[n], in order: i32[n], in query: u64[n, w], in given: T[m, v], inout keys: u64[s, w],"
    "inout tag: i32[s], inout values: T[s, v], inout counts: i32[2], n: i32, w: i32, s: i32, v: i32, how: i32",
    cuda=cuda.APPLY,
    grid=lambda n: -(-n // 256),
    block=256,
)
def apply(
    slots: Any, order: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, counts: Any, how: int
) -> None:
    """Change the slots that were found; see :func:`.plain.apply`. On a GPU ``slots`` are sorted."""
    _cpu().apply(slots, order, query, given, keys, tag, values, counts, int(how))


@kernel(
    "in query: u64[n, w], in keys: u64[s, w], in tag: i32[s], in values: T[s, v], out found: u8[n], out out: T[n, v],"
    "n: i32, w: i32, s: i32, v: i32",
    cuda=cuda.FIND,
    grid=lambda n: -(-n // 256),
    block=256,
)
def find(query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any) -> None:
    """The value of each key, and whether there is one."""
    _cpu().find(query, keys, tag, values, found, out)


@kernel(
    "in keys: u64[s, w], in tag: i32[s], in values: T[s, v], inout new_keys: u64[r, w], inout new_tag: i32[r],"
    "inout new_values: T[r, v], inout counts: i32[2], s: i32, w: i32, v: i32, r: i32",
    cuda=cuda.REHASH,
    grid=lambda s: -(-s // 256),
    block=256,
)
def rehash(keys: Any, tag: Any, values: Any, new_keys: Any, new_tag: Any, new_values: Any, counts: Any) -> None:
    """Put all keys into an empty table."""
    _cpu().rehash(keys, tag, values, new_keys, new_tag, new_values, counts)


@kernel(
    "inout tag: i32[s], inout counts: i32[2], s: i32",
    cuda=cuda.WIPE,
    grid=lambda s: -(-s // 256),
    block=256,
)
def wipe(tag: Any, counts: Any) -> None:
    """Have no keys."""
    tag[...] = 0
    counts[...] = 0
