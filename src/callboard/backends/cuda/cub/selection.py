"""Selections and runs: CUB selects indices by a predicate of the elements, kernels take the elements.

So one algorithm serves flags, runs and values beside keys, and given arrays that are too small are never written beyond
their end. A predicate of the element alone selects the elements themselves, into a span of the plan if the given
array may be too small.
"""

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.cub import texts
from callboard.backends.cuda.cub.arguments import CubArgs, move_kernel
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.cub.plan import index_name, number, storage
from callboard.backends.cuda.cub.texts import no_text
from callboard.backends.cuda.plans import PlanMemory, Span
from callboard.backends.cuda.readback import CudaStatus
from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout
from callboard.core.library import Extents, plans
from callboard.core.op import info_of
from callboard.core.operand import Role
from callboard.kernel import cub
from callboard.kernel.cub.checks import compute_dtype, no_room

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["COUNTS", "Decoding", "Filtering", "Selecting", "Sized"]

COUNTS = 16
"""Bytes of two numbers: CUB counts two parts."""


class Sized:
    """A plan with data-dependent result lengths. Its subclasses count, then write the results.

    Args:
        cccl: Builds.
        op: The message.
    """

    def __init__(self, cccl: Cccl, op: Any) -> None:
        self.cccl = cccl
        self.op = op
        self.memory = PlanMemory(cccl)
        self.counted = cccl.device.allocate(COUNTS)
        self._given = op.count is not None
        self._found = 0
        fields = info_of(type(op)).dynamic
        self._inputs = [at for at, field in enumerate(fields) if field.role is not Role.OUT]
        self._outputs = [at for at, f in enumerate(fields) if f.role is Role.OUT and f.name != "count"]
        self._count = next(at for at, field in enumerate(fields) if field.name == "count")
        self._names = [fields[at].name for at in self._outputs]
        self.args = CubArgs(d=self.counted.address)
        self.outputs: Sequence[int] = ()

    def find(self, native: int, *inputs: Any) -> None:
        """Enqueue the count of the elements into ``counted``, and the preparation of :meth:`write`."""
        raise NotImplementedError

    def write(self, native: int, outputs: Sequence[int]) -> None:
        """Enqueue the writing of the elements found, at most ``args.room``."""
        raise NotImplementedError

    @property
    def bounded(self) -> bool:
        """True if the given arrays hold any number of results."""
        return False

    def query_size(self, stream: "CudaStream", *dynamic: Any) -> Extents:
        """Find them; on the helper's thread, with the stream idle."""
        self.find(stream.native, *(dynamic[at] for at in self._inputs))
        counted = self.cccl.device.read_back(stream, self.counted.address, 8)
        stream.synchronize()
        (self._found,) = struct.unpack("<q", counted.take())
        return [(self._found,)] * len(self._outputs)

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> CudaStatus | None:
        """Write them."""
        native, driver = stream.native, self.cccl.driver
        outputs = self.outputs = [dynamic[at] for at in self._outputs]
        if not self._given:
            self.args.room = self.args.n = self._found
            if self._found:
                self.write(native, outputs)
            return None
        self.find(native, *(dynamic[at] for at in self._inputs))
        room = self.args.room = self.args.n = getattr(self.op, self._names[0]).shape[0]
        if room:
            self.write(native, outputs)
        check = driver.memcpy_dtod(dynamic[self._count], self.counted.address, 8, native)
        driver.check(check, "cuMemcpyDtoDAsync")
        if self.bounded:
            return None
        tag = type(self.op).__struct_config__.tag

        def enough(outcome: bytes) -> None:
            (found,) = struct.unpack("<q", outcome)
            if found > room:
                raise no_room(tag, found, room)

        return CudaStatus(self.counted.address, 8, enough)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self.memory.close()
        self.cccl.device.release(self.counted)

    def grid(self, most: int, name: str) -> int:
        """For how many items a kernel is launched that writes ``name``."""
        return int(getattr(self.op, name).shape[0]) if self._given else most

    def _clear(self, native: int) -> None:
        driver = self.cccl.driver
        driver.check(driver.memset_8(self.counted.address, 0, COUNTS, native), "cuMemsetD8Async")


class Chosen:
    """The indices of a line of n that fulfil a predicate whose state is an address, in a span of the plan."""

    def __init__(self, cccl: Cccl, memory: PlanMemory, n: int, predicate: tuple[str, Any], counted: int) -> None:
        index = index_name(n)
        kind = DTYPES[index].np
        self.indices = memory.take_items(n, kind)
        self._cccl, (self._name, operator) = cccl, predicate
        counts = Span(np.int64)
        counts.ptr = counted
        self._arguments = {
            "d_in": cccl.compute.CountingIterator(kind.type(0)),
            "d_out": self.indices,
            "d_num_selected_out": counts,
        }
        self._run: dict[str, Any] = {"num_items": n, "cond": operator}
        self._step = cccl.step(memory, "select", {"cond": operator}, self._run, **self._arguments)

    def __call__(self, native: int, address: int) -> None:
        self._run["cond"] = self._cccl.stateful(self._name, struct.pack("<Q", address))
        self._step(native)


@plans(cub.RunLengthEncode, cub.Select, cub.Unique, cub.UniqueByKey, sizes=True)
class Selecting(Sized):
    """Flags, and the beginnings of runs: with values, keys and values, or values and lengths."""

    def __init__(self, cccl: Cccl, op: Any) -> None:
        super().__init__(cccl, op)
        memory = self.memory
        line: Layout = op.keys.layout if isinstance(op, cub.UniqueByKey) else op.x.layout
        self._n, index = line.size, index_name(line.size)
        sources = [line, op.values.layout] if isinstance(op, cub.UniqueByKey) else [line]
        self._brings = [memory.brought(source) for source in sources]
        self._flags = memory.brought(op.flags.layout) if isinstance(op, cub.Select) else None
        if self._n:
            predicate = (
                texts.flagged(cccl, index) if isinstance(op, cub.Select) else texts.starts(cccl, line.dtype, index)
            )
            self._chosen = Chosen(cccl, memory, self._n, predicate, self.counted.address)
        self._at = [0] * len(sources)
        self._steps: list[Callable[[int], None]] = []
        for source, name in zip(sources, self._names, strict=False):
            kernel = f"take_{source.dtype.itemsize}_{index}"
            self._steps.append(move_kernel(cccl.device, kernel, self.grid(self._n, name), self.args))
        if isinstance(op, cub.RunLengthEncode):
            kernel = f"lengths_{index}"
            self._steps.append(move_kernel(cccl.device, kernel, self.grid(self._n, "lengths"), self.args))
        given = [getattr(op, name) for name in self._names]
        self._deliveries = [memory.delivered(out.layout) if out is not None else None for out in given]
        memory.settle()

    def find(self, native: int, *inputs: Any) -> None:
        if not self._n:
            self._clear(native)
            return
        if self._flags is not None:
            self._at = [self._brings[0](native, inputs[0])]
            self._chosen(native, self._flags(native, inputs[1]))
            return
        self._at = [bring(native, at) for bring, at in zip(self._brings, inputs, strict=True)]
        self._chosen(native, self._at[0])

    def write(self, native: int, outputs: Sequence[int]) -> None:
        if not self._n:
            return
        args, indices = self.args, self._chosen.indices.ptr
        for at, (step, out, delivery) in enumerate(zip(self._steps, outputs, self._deliveries, strict=True)):
            args.out = out if delivery is None else delivery.kept(native, out)
            if at < len(self._at):
                args.a, args.b = self._at[at], indices
            else:
                args.a, args.m = indices, self._n
            step(native)
            if delivery is not None:
                delivery.finish(native, out)


@plans(cub.SelectIf, sizes=True, refuses=no_text)
class Filtering(Sized):
    """Elements that fulfil a predicate of their own."""

    def __init__(self, cccl: Cccl, op: "cub.SelectIf") -> None:
        super().__init__(cccl, op)
        memory, layout = self.memory, op.x.layout
        self._n = layout.size
        self._bring, self._source = memory.brought(layout), Span(storage(layout))
        out = None if op.out is None else op.out.layout
        self._holds_all = out is not None and out.contiguous and out.size >= self._n
        self._target = Span(storage(layout)) if self._holds_all else memory.take_items(self._n, storage(layout))
        self._delivery = None if out is None or self._holds_all else memory.delivered(out)
        self._name, operator = texts.predicate(cccl, op)
        counts = Span(np.int64)
        counts.ptr = self.counted.address
        self._run: dict[str, Any] = {"num_items": self._n, "cond": operator}
        if self._n:
            self._step = cccl.step(
                memory, "select", {"cond": operator}, self._run, d_in=self._source, d_out=self._target,
                d_num_selected_out=counts,
            )  # fmt: skip
        kernel = f"head_{layout.dtype.itemsize}_{index_name(self._n)}"
        self._head = move_kernel(cccl.device, kernel, self.grid(self._n, "out"), self.args)
        self._work = compute_dtype(layout.dtype)
        memory.settle()

    @property
    def bounded(self) -> bool:
        return self._holds_all

    def find(self, native: int, *inputs: Any) -> None:
        if not self._n:
            self._clear(native)
            return
        x, value = inputs
        self._source.ptr = self._bring(native, x)
        if self._holds_all:
            (self._target.ptr,) = self.outputs
        self._run["cond"] = self.cccl.stateful(self._name, self._state(value))
        self._step(native)

    def write(self, native: int, outputs: Sequence[int]) -> None:
        if self._holds_all or not self._n:
            return
        (out,) = outputs
        self.args.a = self._target.ptr
        self.args.out = out if self._delivery is None else self._delivery.kept(native, out)
        self._head(native)
        if self._delivery is not None:
            self._delivery.finish(native, out)

    def _state(self, value: Any) -> bytes:
        comparison, work = self.op.comparison, self._work
        how = texts.COMPARED
        if value is not None and not work.is_float:
            limits = np.iinfo(work.np)
            if not limits.min <= value <= limits.max:  # beyond the dtype: the same answer for all elements
                large = value > limits.max
                wants = {"less": large, "less_equal": large, "greater": not large, "greater_equal": not large}
                how = texts.ALL if wants.get(comparison, comparison == "not_equal") else texts.NONE
                value = 0
        return number(value or 0, work).tobytes().ljust(8, b"\0") + struct.pack("<q", how)


@plans(cub.RunLengthDecode, sizes=True)
class Decoding(Sized):
    """Repeats each element by its length: the lengths are summed up, each position is searched in the sums."""

    def __init__(self, cccl: Cccl, op: "cub.RunLengthDecode") -> None:
        super().__init__(cccl, op)
        memory, values, lengths = self.memory, op.values.layout, op.lengths.layout
        self._n = values.size
        self._brings = [memory.brought(values), memory.brought(lengths)]
        self._lengths, self._sums = Span(lengths.dtype.np), memory.take_items(self._n, np.int64)
        if self._n:
            self._scan = cccl.step(
                memory, "inclusive_scan", None, {"num_items": self._n}, d_in=self._lengths, d_out=self._sums,
                op=cccl.compute.OpKind.PLUS, init_value=np.zeros(1, np.int64),
            )  # fmt: skip
        self._repeat = move_kernel(
            cccl.device, f"repeat_{values.dtype.itemsize}_i64", self.grid(1 << 40, "out"), self.args
        )
        self._delivery = None if op.out is None else memory.delivered(op.out.layout)
        self._at = 0
        memory.settle()

    def find(self, native: int, *inputs: Any) -> None:
        if not self._n:
            self._clear(native)
            return
        values, lengths = inputs
        self._at, self._lengths.ptr = self._brings[0](native, values), self._brings[1](native, lengths)
        self._scan(native)
        driver = self.cccl.driver
        last = self._sums.ptr + 8 * (self._n - 1)
        driver.check(driver.memcpy_dtod(self.counted.address, last, 8, native), "cuMemcpyDtoDAsync")

    def write(self, native: int, outputs: Sequence[int]) -> None:
        if not self._n:
            return
        args, (out,) = self.args, outputs
        args.a, args.b, args.m = self._at, self._sums.ptr, self._n
        args.out = out if self._delivery is None else self._delivery.kept(native, out)
        self._repeat(native)
        if self._delivery is not None:
            self._delivery.finish(native, out)
