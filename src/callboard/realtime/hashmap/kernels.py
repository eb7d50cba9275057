"""The ops of a hash map: what a CPU computes, and CUDA.

Rows of ``keys`` may have values behind the keys; then ``values`` is one row, for its dtype and width.
"""

from typing import Any

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.hashmap import cuda

__all__ = ["apply", "claim", "find", "rehash", "wipe"]

PACKAGE = "callboard.realtime.hashmap"


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


def _parted(keys: Any, values: Any) -> tuple[Any, Any]:
    """Keys and values that are in one array."""
    width = values.shape[1]
    words = keys.shape[1] - -(-width * values.itemsize // 8)
    return keys[:, :words], keys[:, words:].view(values.dtype)[:, :width]


@kernel(
    "in query: u64[n, w], in keys: u64[s, row], inout tag: i32[s], out slot: i32[n], out order: i32[n], n: i32, w: i32,"
    "s: i32, how: i32",
    cuda=cuda.CLAIM,
    grid=lambda n: -(-n // 256),
    block=256,
)
def claim(query: Any, keys: Any, tag: Any, slot: Any, order: Any, how: int) -> None:
    """The slots of keys; see :func:`.plain.claim`."""
    _cpu().claim(query, keys[:, : query.shape[1]], tag, slot, order, int(how))


@kernel(
    "in slots: i32[n], in order: i32[n], in query: u64[n, w], in given: T[m, v], inout keys: u64[s, row],"
    "inout tag: i32[s], inout values: T[t, v], inout counts: i32[2], n: i32, w: i32, s: i32, v: i32, how: i32",
    cuda=cuda.APPLY,
    grid=lambda n: -(-n // 256),
    block=256,
)
def apply(
    slots: Any, order: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, counts: Any, how: int
) -> None:
    """Change the slots that were found; see :func:`.plain.apply`. On a GPU ``slots`` are sorted."""
    words, columns = _parted(keys, values)
    _cpu().apply(slots, order, query, given, words, tag, columns, counts, int(how))


@kernel(
    "in query: u64[n, w], in keys: u64[s, row], in tag: i32[s], in values: T[t, v], out found: u8[n], out out: T[n, v],"
    "n: i32, w: i32, s: i32, v: i32",
    cuda=cuda.FIND,
    grid=lambda n: -(-n // 256),
    block=256,
)
def find(query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any) -> None:
    """The value of each key, and whether there is one."""
    words, columns = _parted(keys, values)
    _cpu().find(query, words, tag, columns, found, out)


@kernel(
    "in keys: u64[s, w], in tag: i32[s], in values: T[t, v], inout new_keys: u64[r, w], inout new_tag: i32[r],"
    "inout new_values: T[u, v], inout counts: i32[2], s: i32, w: i32, v: i32, r: i32",
    cuda=cuda.REHASH,
    grid=lambda s: -(-s // 256),
    block=256,
)
def rehash(keys: Any, tag: Any, values: Any, new_keys: Any, new_tag: Any, new_values: Any, counts: Any) -> None:
    """Put all keys into an empty table."""
    old, new = _parted(keys, values), _parted(new_keys, new_values)
    _cpu().rehash(old[0], tag, old[1], new[0], new_tag, new[1], counts)


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
