"""Plans of attention in fp8, which cuDNN executes: there are no other engines for it."""

import struct
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.attention.arguments import AttentionArgs, arguments, names_of
from callboard.backends.cuda.attention.checking import checking
from callboard.backends.cuda.attention.rules import ALIGNMENT, Wanted
from callboard.backends.cuda.attention.sdpa import MINUS_INFINITY, stats_of, strides_of
from callboard.core.dtype import DTYPES
from callboard.core.errors import UnsupportedOp
from callboard.core.op import info_of
from callboard.kernel.attention import BackwardFp8

if TYPE_CHECKING:
    from callboard.backends.cuda.attention.cudnn import CudnnGraphs, Graph
    from callboard.backends.cuda.attention.library import CudaAttention
    from callboard.backends.cuda.readback import CudaStatus
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CudnnFp8"]

GAIN = 256.0
"""The scale of probabilities before they are rounded to e4m3, whose largest number is 448."""
KEPT = ("one", "gain", "ungain", "score gain", "score ungain", "amax_s", "amax_dp")
"""Numbers of a plan on the device, 16 bytes apart; the last ones are written and not read."""
STORED = ("q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv")


class CudnnFp8:
    """A plan of ``ForwardFp8`` or ``BackwardFp8``: ``plan(stream, *operands)``.

    Args:
        library: The library of the plan.
        graphs: Graphs of cuDNN.
        w: The call.

    Raises:
        UnsupportedOp: cuDNN has no engine for it.
    """

    executed_by = "cudnn"

    def __init__(self, library: "CudaAttention", graphs: "CudnnGraphs", w: Wanted) -> None:
        op, problem = w.op, w.problem
        self._wanted, self._library, self._driver = w, library, library.device.driver
        self._tag: str = type(op).__struct_config__.tag
        self._args: AttentionArgs = arguments(op, problem)
        self._names = names_of(op)
        made = op.infer()
        layouts = {n: made[n] if getattr(op, n) is None else getattr(op, n).layout for n in STORED if n in made}
        self._fills = [(n, layout.nbytes) for n, layout in layouts.items()]
        self._dtypes = {n: layout.dtype for n, layout in layouts.items()}
        self._order: list[str] = []
        self._plan = graphs.plan(self._describe, self._tag, info_of(type(op)).split(op).signature)
        self._checking = None
        self._memory = None
        try:
            # The check reads lengths only, whatever the dtype.
            self._checking = checking(library, op, problem._replace(dtype=DTYPES["f16"]), tables=True)
            self._memory = library.device.allocate(16 * len(KEPT))
        except BaseException:  # any exception: release the plans made so far
            self.close()
            raise
        self._kept = {name: self._memory.address + 16 * i for i, name in enumerate(KEPT)}
        numbers = {"one": 1.0, "gain": GAIN, "ungain": 1 / GAIN}
        if isinstance(op, BackwardFp8):
            numbers |= {"score gain": op.score_gain, "score ungain": 1 / op.score_gain}
        self._sets = [(self._kept[n], struct.unpack("<I", struct.pack("<f", x))[0]) for n, x in numbers.items()]

    def _describe(self, g: "Graph") -> None:
        w, p, args = self._wanted, self._wanted.problem, self._args
        self._order.clear()
        heads, dims = {"q": p.heads, "k": p.kv_heads, "v": p.kv_heads}, {"q": p.dim, "k": p.dim, "v": p.dim_v}
        shapes = {n: (p.batch, heads[n], p.seq_q if n == "q" else p.seq_k, dims[n]) for n in "qkv"}
        shapes["out"] = (p.batch, p.heads, p.seq_q, p.dim_v)

        def operand(name: str, like: str, dtype: Any) -> Any:
            self._order.append(name)
            return g.input(shapes[like], strides_of(shapes[like], getattr(args, f"{name}_at")), dtype)

        def number(name: str) -> Any:
            self._order.append(name)
            return g.input((1, 1, 1, 1), (1, 1, 1, 1), "f32")

        def stored(tensor: Any, name: str, like: str) -> None:
            self._order.append(name)
            shape = shapes[like]
            g.output(tensor, shape, strides_of(shape, getattr(args, f"{name}_at")), self._dtypes[name])

        def largest(tensor: Any, name: str) -> None:
            self._order.append(name)
            g.output(tensor, (1, 1, 1, 1), (1, 1, 1, 1), "f32")

        settings: dict[str, Any] = {"attn_scale": p.params.scale, "use_causal_mask": w.right == 0}
        if w.padded:
            settings["use_padding_mask"] = True
            for name, argument in (("len_q", "seq_len_q"), ("len_k", "seq_len_kv")):
                settings[argument] = g.input((p.batch, 1, 1, 1), (1, 1, 1, 1), "i32")
                self._order.append(f"checked {name}")
        inputs = {n: operand(n, n, p.dtype) for n in "qkv"}
        numbers = {f"descale_{n}": number(f"scale_{n}") for n in "qkv"}
        numbers |= {"descale_s": number("ungain"), "scale_s": number("gain")}
        if not isinstance(w.op, BackwardFp8):
            numbers["scale_o"] = number("scale_out")
            out, stats, amax_s, amax = g.raw.sdpa_fp8(**inputs, **numbers, generate_stats=True, **settings)
            stored(out, "out", "out")
            self._order.append("lse")
            g.output(stats, *stats_of(p, args), "f32")
            largest(amax_s, "amax_s")
            largest(amax, "amax")
            return
        inputs |= {"o": operand("out", "out", p.dtype), "dO": operand("dout", "out", w.op.dout.dtype)}
        self._order.append("lse")
        inputs["stats"] = g.input(*stats_of(p, args), "f32")
        numbers |= {"descale_o": number("descale_out"), "descale_dO": number("scale_dout")}
        numbers |= {"descale_dP": number("score ungain"), "scale_dP": number("score gain")}
        numbers |= {f"scale_d{n.upper()}": number(f"scale_d{n}") for n in "qkv"}
        if w.op.deterministic:
            settings["use_deterministic_algorithm"] = True
        found = g.raw.sdpa_fp8_backward(**inputs, **numbers, **settings)
        for name, tensor in zip("qkv", found[:3], strict=True):
            stored(tensor, f"d{name}", name)
        for name, tensor in zip(("amax_dq", "amax_dk", "amax_dv", "amax_dp"), found[3:], strict=True):
            largest(tensor, name)

    def __call__(self, stream: "CudaStream", *operands: Any) -> "CudaStatus | None":
        named = dict(zip(self._names, operands, strict=True))
        for name in STORED:
            if named.get(name, 0) % ALIGNMENT:
                raise UnsupportedOp(
                    f"cuda, {self._tag}: {name} starts {named[name] % ALIGNMENT} bytes after a multiple of "
                    f"{ALIGNMENT}: pass dev.copy({name})"
                )
        at: dict[str, Any] = {
            n: self._kept["one"] if x is None and "scale" in n else x for n, x in named.items()
        } | self._kept
        found, native = None, stream.native
        check, memset = self._driver.check, self._driver.memset_32
        for address, bits in self._sets:
            check(memset(address, bits, 1, native), "cuMemsetD32Async")
        if self._checking is not None:
            self._args.len_q, self._args.len_k = named["seqlens_q"], named["seqlens_k"]
            found = self._checking(stream, self._args)
            for name, nbytes in self._fills:  # cuDNN leaves the part after the lengths unchanged
                value = MINUS_INFINITY if name == "lse" else 0
                check(memset(named[name], value, nbytes // 4, native), "cuMemsetD32Async")
            at |= {f"checked {name}": address for name, address in self._checking.at.items()}
        self._plan(stream, [at[name] for name in self._order])
        return found

    def close(self) -> None:
        """Free the memory; no launch uses it any more."""
        self._plan.close()
        if self._checking is not None:
            self._checking.close()
        if self._memory is not None:
            self._library.device.release(self._memory)
