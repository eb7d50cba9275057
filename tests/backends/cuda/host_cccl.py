"""A stand-in for ``cuda.compute`` that executes on host memory, exactly where addresses and counts say.

What is not promised by the binding is refused here too: temporary storage that is too small, arguments that a call does
not have, an object used by two threads at once.
"""

import enum
import re
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from host_cub import JOINS, array, wide
from host_driver import HostDriver

TEMP = 777
"""Bytes that each algorithm needs."""
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "a * a < b * b": lambda a, b: a * a < b * b,
    "a < b": lambda a, b: a < b,
}
PREDICATES: dict[str, Callable[[Any], Any]] = {"return a > 0 && a < 3;": lambda a: (a > 0) & (a < 3)}
COMPARISONS = {
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
STORED = {
    "Half": np.float16,
    "float": np.float32,
    "double": np.float64,
    "signed char": np.int8,
    "short": np.int16,
    "int": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
}


def by_bits(keys: Any) -> Any:
    """What CUB's radix sort compares: zeros of both signs as one, NaNs by their signs and bits."""
    if keys.dtype.kind in "iub":
        return keys
    bits = np.where(wide(keys) == 0, keys.dtype.type(0), keys).view(f"u{keys.dtype.itemsize}")
    sign = bits.dtype.type(1 << 8 * keys.dtype.itemsize - 1)
    return np.where(bits & sign, ~bits, bits | sign)


class RawOp:
    def __init__(self, *, ltoir: bytes, name: str, state: bytes = b"", state_alignment: int = 1) -> None:
        self._ltoir, self._name, self._state = ltoir, name, state
        assert len(state) % state_alignment == 0

    def get_state(self) -> bytes:
        return self._state


class CountingIterator:
    def __init__(self, start: Any) -> None:
        self.kind = ("CountingIterator", start.dtype.name)


class OpKind(enum.IntEnum):
    PLUS, MULTIPLIES, MINIMUM, MAXIMUM = range(4)


UFUNCS = (np.add, np.multiply, np.minimum, np.maximum)


def joins(op: Any) -> Callable[[Any, Any], Any]:
    """What an operator does with two numbers."""
    if isinstance(op, OpKind):
        return UFUNCS[op]
    body = re.search(rb"#line 1\n(.+)\n}", op._ltoir)
    assert body is not None
    return JOINS[body[1].decode()]


class Algorithm:
    """Made by ``make_*``; the methods have the calls' arguments."""

    def __init__(self, driver: HostDriver, name: str, made: dict[str, Any]) -> None:
        self._driver, self._name, self._made = driver, name, made
        self._busy = False

    def serialize(self) -> bytes:
        built = self._driver.__dict__.setdefault("built", [])
        built.append(self)
        return str(len(built) - 1).encode()

    def __call__(self, *, temp_storage: Any, stream: Any, **arguments: Any) -> int:
        assert not self._busy
        self._busy = True
        work = getattr(self, self._name)
        if temp_storage is not None:
            assert temp_storage.nbytes >= TEMP
            assert self._driver.on_device(temp_storage.data_ptr(), TEMP)
            version, native = stream.__cuda_stream__()
            assert version == 0
            assert native
            self._driver.streams.add(native)
            with np.errstate(all="ignore"):
                work(**arguments)
        self._busy = False
        return TEMP

    def _at(self, span: Any, n: int) -> Any:
        assert span.dtype.itemsize
        assert n == 0 or self._driver.on_device(span.data_ptr(), n * span.dtype.itemsize)
        return array(span.data_ptr(), span.dtype, n)

    # -- reductions and scans ------------------------------------------------------------------------------------------

    def reduce_into(self, *, d_in: Any, d_out: Any, num_items: int, op: Any, h_init: Any) -> None:
        self._at(d_out, 1)[0] = self._joined(op, h_init[0], self._at(d_in, num_items))

    def segmented_reduce(
        self,
        *,
        d_in: Any,
        d_out: Any,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        op: Any,
        h_init: Any,
    ) -> None:
        begins, ends = (self._at(span, num_segments) for span in (start_offsets_in, end_offsets_in))
        out = self._at(d_out, num_segments)
        x = self._at(d_in, int(max(ends)))
        for at, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            out[at] = self._joined(op, h_init[0], x[begin:end])

    def _joined(self, op: Any, start: Any, x: Any) -> Any:
        join = joins(self._made["op"])
        x = x.astype(start.dtype)
        if isinstance(join, np.ufunc):
            return join.reduce(x, initial=start, dtype=start.dtype)
        for one in x:
            start = start.dtype.type(join(start, one))
        return start

    def _scan(self, op: Any, start: Any, x: Any) -> Any:
        join, found = joins(op), np.empty(x.size + 1, start.dtype)
        if isinstance(join, np.ufunc):
            return join.accumulate(np.concatenate([[start], x.astype(start.dtype)]), dtype=start.dtype)
        found[0] = start
        for at, one in enumerate(x.astype(start.dtype)):
            found[at + 1] = join(found[at], one)
        return found

    def inclusive_scan(self, *, d_in: Any, d_out: Any, op: Any, init_value: Any, num_items: int) -> None:
        found = self._scan(self._made["op"], init_value[0], self._at(d_in, num_items))
        self._at(d_out, num_items)[...] = found[1:]

    def exclusive_scan(self, *, d_in: Any, d_out: Any, op: Any, init_value: Any, num_items: int) -> None:
        found = self._scan(self._made["op"], init_value[0], self._at(d_in, num_items))
        self._at(d_out, num_items)[...] = found[:-1]

    # -- sorts ---------------------------------------------------------------------------------------------------------

    def radix_sort(
        self, *, d_in_keys: Any, d_out_keys: Any, d_in_values: Any, d_out_values: Any, num_items: int,
        begin_bit: int = 0, end_bit: int | None = None,
    ) -> None:  # fmt: skip
        keys = self._at(d_in_keys, num_items).copy()
        if end_bit is not None:
            assert int(keys.max(initial=0)) < 1 << end_bit
        ranks = by_bits(keys)
        if self._made["order"] == "descending":
            order = num_items - 1 - np.argsort(ranks[::-1], kind="stable")[::-1]
        else:
            order = np.argsort(ranks, kind="stable")
        self._at(d_out_keys, num_items)[...] = keys[order]
        if d_in_values is not None:
            self._at(d_out_values, num_items)[...] = self._at(d_in_values, num_items)[order]

    def merge_sort(
        self, *, d_in_keys: Any, d_in_values: Any, d_out_keys: Any, d_out_values: Any, num_items: int, op: Any
    ) -> None:
        import functools

        body = re.search(rb"#line 1\nreturn (.+);\n}", self._made["op"]._ltoir)
        assert body is not None
        less = ORDERS[body[1].decode()]
        keys = self._at(d_in_keys, num_items)
        compare = functools.cmp_to_key(lambda i, j: int(less(keys[j], keys[i])) - int(less(keys[i], keys[j])))
        order = sorted(range(num_items), key=compare)
        self._at(d_out_keys, num_items)[...] = keys[order]
        self._at(d_out_values, num_items)[...] = self._at(d_in_values, num_items)[order]

    # -- selections ----------------------------------------------------------------------------------------------------

    def _kept(self, operator: Any, state: bytes, n: int) -> Any:
        text = operator._ltoir.decode()
        (at,) = struct.unpack_from("<Q", state)
        if operator._name.startswith("callboard_flag"):
            return array(at, np.uint8, n) != 0
        found = re.search(r"const ([\w ]+?)\*? ?\* ?x;", text) or re.search(r"const (.+)\* x;", text)
        assert found is not None
        if found[1] == "Brain":
            import ml_dtypes

            x = array(at, ml_dtypes.bfloat16, n).astype(np.float32)
        else:
            x = array(at, STORED[found[1]], n)
            x = x.astype(np.float32) if x.dtype == np.float16 else x
        if operator._name.startswith("callboard_start"):
            return np.concatenate([[True], x[1:] != x[:-1]])
        raise AssertionError(operator._name)

    def _fulfil(self, operator: Any, state: bytes, x: Any) -> Any:
        """Which elements fulfil a predicate of their own."""
        x = wide(x)
        (how,) = struct.unpack_from("<q", state, 8)
        number = np.frombuffer(state, x.dtype, 1)[0]
        text = operator._ltoir.decode()
        for body, predicate in PREDICATES.items():
            if body in text:
                return predicate(x)
        if how:
            assert "if (how) return how == 1;" in text
            return np.full(x.size, how == 1)
        sign = re.search(r"\nreturn a (.+) number;", text)
        assert sign is not None
        return COMPARISONS[sign[1]](x, number)

    def select(self, *, d_in: Any, d_out: Any, d_num_selected_out: Any, cond: Any, num_items: int) -> None:
        operator = self._made["cond"]
        if operator._name.startswith("callboard_keep"):
            x = self._at(d_in, num_items)
            found = x[self._fulfil(operator, cond.get_state(), x)]
        else:
            found = np.flatnonzero(self._kept(operator, cond.get_state(), num_items))
        self._at(d_out, found.size)[...] = found
        self._at(d_num_selected_out, 2)[...] = found.size, 0

    def three_way_partition(
        self, *, d_in: Any, d_first_part_out: Any, d_second_part_out: Any, d_unselected_out: Any,
        d_num_selected_out: Any, select_first_part_op: Any, select_second_part_op: Any, num_items: int,
    ) -> None:  # fmt: skip
        first = self._kept(self._made["select_first_part_op"], select_first_part_op.get_state(), num_items)
        second = self._kept(self._made["select_second_part_op"], select_second_part_op.get_state(), num_items) & ~first
        for span, mask in (
            (d_first_part_out, first),
            (d_second_part_out, second),
            (d_unselected_out, ~first & ~second),
        ):
            found = np.flatnonzero(mask)
            self._at(span, num_items)[: found.size] = found
        self._at(d_num_selected_out, 2)[...] = first.sum(), second.sum()


class HostCompute:
    """The names of ``cuda.compute`` that the backend uses.

    Attributes:
        made: Names of the algorithms that were compiled.
    """

    OpKind = OpKind
    CountingIterator = CountingIterator
    SortOrder = SimpleNamespace(ASCENDING="ascending", DESCENDING="descending")
    Determinism = SimpleNamespace(RUN_TO_RUN=1, NOT_GUARANTEED=0)
    op = SimpleNamespace(RawOp=RawOp)

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self.made: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Algorithm]:
        stem = name.removeprefix("make_")
        if stem == name or not hasattr(Algorithm, stem):
            raise AttributeError(name)

        def make(*, compute_capability: tuple[int, int], **arguments: Any) -> Algorithm:
            self.made.append(stem)
            return Algorithm(self._driver, stem, arguments)

        return make

    def deserialize(self, blob: bytes) -> Algorithm:
        built = self._driver.__dict__["built"][int(blob)]
        return Algorithm(self._driver, built._name, built._made)
