"""Plans that cuDNN's attention executes."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.attention.arguments import POINTERS, AttentionArgs, Steps, arguments, names_of
from callboard.backends.cuda.attention.checking import checking
from callboard.backends.cuda.attention.own import OwnBackward, OwnForward, sinks_launcher
from callboard.backends.cuda.attention.rules import ALIGNMENT, Wanted, sinks_after
from callboard.core.op import info_of
from callboard.kernel.attention import Backward, BackwardBias, PagedForward
from callboard.kernel.attention.scores import Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.attention.cudnn import CudnnGraphs, Graph
    from callboard.backends.cuda.attention.library import CudaAttention
    from callboard.backends.cuda.readback import CudaStatus
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["MINUS_INFINITY", "CudnnAttention", "stats_of", "strides_of"]

MINUS_INFINITY = 0xFF800000
"""Minus infinity as the bits of an f32."""


class CudnnAttention:
    """A plan of a call that the table gives to cuDNN: ``plan(stream, *operands)``.

    Operands that do not begin at a multiple of 16 bytes, which is only known at the launch, use our own kernels.

    Args:
        library: The library of the plan.
        graphs: Graphs of cuDNN.
        w: The call.

    Raises:
        UnsupportedOp: cuDNN has no engine for it after all.
    """

    executed_by = "cudnn"

    def __init__(self, library: "CudaAttention", graphs: "CudnnGraphs", w: Wanted) -> None:
        op, problem = w.op, w.problem
        self._wanted, self._driver = w, library.device.driver
        self._args: AttentionArgs = arguments(op, problem)
        self._backward = isinstance(op, Backward | BackwardBias)
        self._places = [POINTERS.get(n) or ({"out": "out_in", "lse": "lse_in"}[n] if self._backward else n)
                        for n in names_of(op)]  # fmt: skip
        made = op.infer()
        outputs = ("dq", "dk", "dv") if self._backward else ("out", "lse")
        self._fills = [(n, (made[n] if getattr(op, n) is None else getattr(op, n).layout).nbytes) for n in outputs]
        self._order: list[str] = []
        self._plan = graphs.plan(self._describe, type(op).__struct_config__.tag, info_of(type(op)).split(op).signature)
        try:
            self._checking = checking(library, op, problem, tables=True)
            own = OwnBackward if self._backward else OwnForward
            self._own: Any = own(library, op, self._checking)
            self._sinks = sinks_launcher(library, self._args, problem) if sinks_after(w) else None
        except BaseException:  # any exception: release the workspace
            self._plan.close()
            raise

    # -- the graph -----------------------------------------------------------------------------------------------------

    def _describe(self, g: "Graph") -> None:
        w, p, args = self._wanted, self._wanted.problem, self._args
        self._order.clear()
        paged = isinstance(w.op, PagedForward)
        starts = {n: self._ragged(g, f"off_{n}") for n in ("q", "k", "v", "o", "lse")} if p.ragged else {}
        if paged:
            starts = {n: x for n, x in starts.items() if n not in "kv"}
        settings = self._settings(g)
        heads, dims = {"q": p.heads, "k": p.kv_heads, "v": p.kv_heads}, {"q": p.dim, "k": p.dim, "v": p.dim_v}
        inputs = {}
        for name in "qkv":
            rows = p.seq_q if name == "q" else p.seq_k
            shape = (p.batch, heads[name], rows, dims[name])
            if name != "q" and paged:
                shape = (args.pages, p.kv_heads, args.block_size, dims[name])
            inputs[name] = self._input(g, name, shape, getattr(args, f"{name}_at"), starts.get(name))
        out_shape = (p.batch, p.heads, p.seq_q, p.dim_v)
        if self._backward:
            settings["use_deterministic_algorithm"] = w.op.deterministic
            if p.ragged:
                settings |= {"max_total_seq_len_q": args.rows_q, "max_total_seq_len_kv": args.rows_k}
            o = self._input(g, "out_in", out_shape, args.out_at, starts.get("o"))
            do = self._input(g, "dout", out_shape, args.dout_at, starts.get("do", starts.get("o")))
            stats = g.input(*stats_of(p, args), "f32", starts.get("lse"))
            self._order.append("lse_in")
            found = g.raw.sdpa_backward(**inputs, o=o, dO=do, stats=stats, **settings)
            for name, tensor in zip("qkv", found, strict=False):
                rows = p.seq_q if name == "q" else p.seq_k
                shape, at = (p.batch, heads[name], rows, dims[name]), getattr(args, f"d{name}_at")
                g.output(tensor, shape, strides_of(shape, at), p.dtype, starts.get(name))
                self._order.append(f"d{name}")
            return
        found = g.raw.sdpa(**inputs, generate_stats=True, **settings)
        g.output(found[0], out_shape, strides_of(out_shape, args.out_at), p.dtype, starts.get("o"))
        g.output(found[1], *stats_of(p, args), "f32", starts.get("lse"))
        self._order += ["out", "lse"]

    def _settings(self, g: "Graph") -> dict[str, Any]:
        w, p, op = self._wanted, self._wanted.problem, self._wanted.op
        alignment = g.module.diagonal_alignment
        found: dict[str, Any] = {
            "attn_scale": p.params.scale,
            "diagonal_alignment": alignment.BOTTOM_RIGHT if w.bottom_right else alignment.TOP_LEFT,
        }
        if w.left >= 0:
            found["diagonal_band_left_bound"] = w.left + 1  # it counts the position itself
        if w.right >= 0:
            found["diagonal_band_right_bound"] = w.right
        if w.padded:
            found["use_padding_mask"] = True
            for name, argument in (("len_q", "seq_len_q"), ("len_k", "seq_len_kv")):
                found[argument] = g.input((p.batch, 1, 1, 1), (1, 1, 1, 1), "i32")
                self._order.append(f"checked {name}")
        if getattr(op, "bias", None) is not None:
            bias = op.bias.layout
            found["bias"] = g.input(bias.shape, bias.strides, bias.dtype)
            self._order.append("bias")
        if (
            op.sink is not None and not self._backward and not sinks_after(w)
        ):  # the gradients find it in the log-sum-exps
            found["sink_token"] = g.input((1, p.heads, 1, 1), (p.heads, 1, 1, 1), "f32")
            self._order.append("sink")
        if isinstance(op, PagedForward):
            blocks = self._args.max_blocks
            for which in "kv":
                found[f"paged_attention_{which}_table"] = g.input(
                    (p.batch, 1, blocks, 1), (blocks, blocks, 1, 1), "i32"
                )
                self._order.append("checked tables")
            found["paged_attention_max_seq_len_kv"] = p.seq_k
        return found

    def _ragged(self, g: "Graph", name: str) -> Any:
        self._order.append(f"checked {name}")
        count = self._wanted.problem.batch + 1
        return g.input((count, 1, 1, 1), (1, 1, 1, 1), "i32")

    def _input(self, g: "Graph", name: str, shape: tuple[int, ...], at: Steps, ragged: Any) -> Any:
        self._order.append(name)
        return g.input(shape, strides_of(shape, at), self._wanted.problem.dtype, ragged)

    # -- a call --------------------------------------------------------------------------------------------------------

    def __call__(self, stream: "CudaStream", *operands: Any) -> "CudaStatus | None":
        named = dict(zip(self._places, operands, strict=True))
        union = 0
        for name, address in named.items():
            if name not in ("seed", "offset", "cu_q", "cu_k", "len_q", "len_k", "tables") and address is not None:
                union |= address
        if union % ALIGNMENT:
            status: CudaStatus | None = self._own(stream, *operands)
            return status
        found = None
        if self._checking is not None:
            for name in ("cu_q", "cu_k", "len_q", "len_k", "tables"):
                setattr(self._args, name, named.get(name))
            found = self._checking(stream, self._args)
            memset, native = self._driver.memset_32, stream.native
            for name, nbytes in self._fills:  # cuDNN leaves the part after the lengths unchanged
                value = MINUS_INFINITY if name == "lse" else 0
                self._driver.check(memset(named[name], value, nbytes // 4, native), "cuMemsetD32Async")
        at = {} if self._checking is None else self._checking.at
        self._plan(stream, [at[n[8:]] if n.startswith("checked ") else named[n] for n in self._order])
        if self._sinks is not None:
            self._args.out, self._args.lse, self._args.sink = named["out"], named["lse"], named["sink"]
            self._sinks(stream.native)
        return found

    def close(self) -> None:
        """Free the memory; no launch uses it any more."""
        self._plan.close()
        self._own.close()  # and the buffers of its checks


def strides_of(shape: tuple[int, ...], at: Steps) -> tuple[int, ...]:
    """Steps of an operand ``[batch, heads, rows, dim]``; those of the batch if it is packed are never taken."""
    return (at.batch or shape[2] * at.row, at.head, at.row, 1)


def stats_of(p: Problem, args: AttentionArgs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and steps of the log-sum-exps."""
    shape = (p.batch, p.heads, p.seq_q, 1)
    if p.ragged:
        return shape, (p.seq_q * p.heads, 1, p.heads, 1)
    return shape, (args.lse_at.batch or p.heads * p.seq_q, args.lse_at.head, args.lse_at.row, 1)
