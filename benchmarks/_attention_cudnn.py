"""Attention by NVIDIA's frontend of cuDNN, called directly: the baseline of ``attention.py``."""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Direct"]

GAIN = 256.0
"""What probabilities are multiplied by before they are rounded to e4m3; callboard takes the same."""
Shape = tuple[int, ...]


class Direct:
    """A graph of attention, and its operands.

    Args:
        cuda: Memory and a stream.
        dtype: Of queries, keys and values.
        longest: Queries of the longest sequence.
    """

    def __init__(self, cuda: Any, dtype: str, batch: int, heads: int, longest: int, dim: int) -> None:
        import cudnn

        self._cudnn, self._cuda = cudnn, cuda
        self._types = cudnn.data_type
        self._kind = {"bf16": self._types.BFLOAT16, "f16": self._types.HALF, "f8_e4m3": self._types.FP8_E4M3}[dtype]
        self._handle = cudnn.create_handle()
        cudnn.set_stream(handle=self._handle, stream=cuda.stream)
        self._narrow, self._batch = dtype == "f8_e4m3", batch
        self._out = (batch, heads, longest, dim), (longest * heads * dim, dim, heads * dim, 1)
        self._stats = (batch, heads, longest, 1), (heads * longest, longest, 1, 1)
        self._begin()

    def _begin(self) -> None:
        single = self._types.FLOAT
        self._graph = self._cudnn.pygraph(
            io_data_type=self._kind, intermediate_data_type=single, compute_data_type=single, handle=self._handle
        )
        self._given: dict[Any, Any] = {}

    # -- operands ------------------------------------------------------------------------------------------------------

    def put(self, array: Any) -> int:
        return int(self._cuda.put(array))

    def _input(self, address: Any, shape: Shape, strides: Shape, kind: Any = None) -> Any:
        made = self._graph.tensor(dim=list(shape), stride=list(strides), data_type=kind or self._kind)
        self._given[made] = address
        return made

    def _output(self, tensor: Any, shape: Shape, strides: Shape, kind: Any = None) -> int:
        nbytes = int(np.prod(shape)) * (4 if kind is self._types.FLOAT else 1 if self._narrow else 2)
        tensor.set_output(True).set_dim(list(shape)).set_stride(list(strides)).set_data_type(kind or self._kind)
        self._given[tensor] = address = int(self._cuda.empty(nbytes))
        return address

    def _number(self, x: float) -> Any:
        return self._input(self.put(np.float32([x])), (1, 1, 1, 1), (1, 1, 1, 1), self._types.FLOAT)

    def _lengths(self, lengths: Any) -> Any:
        return self._input(self.put(np.asarray(lengths, np.int32)), (self._batch, 1, 1, 1), (1,) * 4, self._types.INT32)

    @staticmethod
    def _heads_second(shape: Shape) -> tuple[Shape, Shape]:
        n, rows, heads, dim = shape
        return (n, heads, rows, dim), (rows * heads * dim, dim, heads * dim, 1)

    def _built(self) -> Callable[[], Any]:
        graph, given, handle = self._graph, self._given, self._handle
        graph.build([self._cudnn.heur_mode.A, self._cudnn.heur_mode.FALLBACK])
        room = self._cuda.empty(max(1, graph.get_workspace_size()))
        return lambda: graph.execute(given, room, handle=handle)

    # -- problems ------------------------------------------------------------------------------------------------------

    def forward(self, at: list[int], shapes: list[Shape], **options: Any) -> tuple[Callable[[], Any], int, int]:
        """Of operands ``[batch, rows, heads, dim]``: how to do it, and where result and log-sum-exps are."""
        q, k, v = (self._input(x, *self._heads_second(shape)) for x, shape in zip(at, shapes, strict=True))
        options |= {"q": q, "k": k, "v": v, "generate_stats": True}
        if self._narrow:
            options |= {f"descale_{n}": self._number(1.0) for n in "qkv"}
            options |= {"descale_s": self._number(1 / GAIN), "scale_s": self._number(GAIN)}
            out, lse, *largest = self._graph.sdpa_fp8(**options, scale_o=self._number(1.0))
            for each in largest:
                self._output(each, (1, 1, 1, 1), (1, 1, 1, 1), self._types.FLOAT)
        else:
            out, lse = self._graph.sdpa(**options)
        addresses = self._output(out, *self._out), self._output(lse, *self._stats, self._types.FLOAT)
        return self._built(), *addresses

    def paged(self, at: list[int], shapes: list[Shape], table: Any, rows: int, scale: float) -> tuple[Any, int]:
        """One query of each sequence over pages."""
        blocks, address = table.shape[1], self.put(table)
        form = (self._batch, 1, blocks, 1), (blocks, blocks, 1, 1), self._types.INT32
        tables = {f"paged_attention_{n}_table": self._input(address, *form) for n in "kv"}
        lengths = {"seq_len_q": self._lengths([1] * self._batch), "seq_len_kv": self._lengths([rows] * self._batch)}
        run, out, _ = self.forward(
            at,
            shapes,
            attn_scale=scale,
            use_padding_mask=True,
            paged_attention_max_seq_len_kv=rows,
            **tables,
            **lengths,
        )
        return run, out

    def backward(self, at: list[int], shapes: list[Shape], scale: float) -> tuple[Any, int]:
        """Causal, with the queries for the gradient of the result; where the gradient of the queries is."""
        run, out, lse = self.forward(at, shapes, attn_scale=scale, use_causal_mask=True)
        run()
        self._begin()
        forms = [self._heads_second(shape) for shape in shapes]
        inputs = [self._input(x, *form) for x, form in zip(at, forms, strict=True)]
        options = dict(zip("qkv", inputs, strict=True)) | {"o": self._input(out, *self._out)}
        options |= {"dO": self._input(at[0], *self._out), "stats": self._input(lse, *self._stats, self._types.FLOAT)}
        made = self._graph.sdpa_backward(**options, attn_scale=scale, use_causal_mask=True)
        first, *_ = [self._output(x, *form) for x, form in zip(made, forms, strict=True)]
        return self._built(), first

    def packed(self, arrays: list[Any], starts: Any, longest: int, scale: float) -> tuple[Any, int]:
        """Causal, of packed sequences ``[tokens, heads, dim]`` in f16; the frontend wants their buffers with a size."""
        import cupy

        def sized(address: int, shape: Shape) -> Any:
            memory = cupy.cuda.UnownedMemory(address, 2 * int(np.prod(shape)), None)
            return cupy.ndarray(shape, np.float16, cupy.cuda.MemoryPointer(memory, 0))

        def offsets(step: int) -> Any:
            form = (self._batch + 1, 1, 1, 1), (1, 1, 1, 1), self._types.INT32
            return self._input(self.put((starts * step).astype(np.int32)), *form)

        def operand(x: Any) -> Any:
            _, heads, dim = x.shape
            made = self._input(sized(self.put(x), x.shape), *self._heads_second((self._batch, longest, heads, dim)))
            return made.set_ragged_offset(offsets(heads * dim))

        q, k, v = map(operand, arrays)
        lengths = {name: self._lengths(np.diff(starts)) for name in ("seq_len_q", "seq_len_kv")}
        options = {"attn_scale": scale, "use_causal_mask": True, "use_padding_mask": True, "generate_stats": True}
        out, lse = self._graph.sdpa(q=q, k=k, v=v, **options, **lengths)
        tokens, heads, dim = arrays[0].shape
        address = self._output(out, *self._out)
        self._given[out.set_ragged_offset(offsets(heads * dim))] = sized(address, (tokens, heads, dim))
        strides = (longest * heads, 1, heads, 1)
        sums = self._output(lse, self._stats[0], strides, self._types.FLOAT)
        memory = cupy.cuda.UnownedMemory(sums, 4 * tokens * heads, None)
        whole = cupy.ndarray((tokens, heads), np.float32, cupy.cuda.MemoryPointer(memory, 0))
        self._given[lse.set_ragged_offset(offsets(heads))] = whole
        return self._built(), address
