"""``GroupedExperts``: experts of two matrices, all of them as grouped products on a device."""

from typing import Any

import numpy as np

from callboard.core.dtype import as_dtype
from callboard.core.ref import GpuRef
from callboard.core.ref.hostarrays import refuse_masked
from callboard.device.client.handle import Device
from callboard.kernel.cutlass.epilogue import EpilogueVisitorTree
from callboard.patterns.moe.arrays import Array, Indices

__all__ = ["GroupedExperts"]


class GroupedExperts:
    """The experts of a :class:`MoeRouter` as grouped products: ``activation(x @ up[e]) @ down[e]`` for expert ``e``.

    ::

        experts = cb.GroupedExperts(gpu, up, down, activation="silu", gate=gate)
        async with cb.MoeRouter(logits, experts) as router:
            ...

    A request is two products (three with a gate) for all experts together, whatever rows each has. The weights are
    copied to the device, and again after a lost context.

    Args:
        device: Device that computes them, by ``device.cutlass``.
        up: ``[experts, width, inner]``: of f16, bf16, f32 or f64.
        down: ``[experts, inner, width]`` of the same dtype.
        activation: A function of an epilogue: ``"relu"``, ``"gelu"``, ``"silu"``, …
        gate: ``[experts, width, inner]``: the hidden values are ``activation(x @ gate[e]) * (x @ up[e])``, as in
            Mixtral (SwiGLU). None: there is no such factor.

    Raises:
        TypeError: Weights of another dtype.
        ValueError: A weight has other axes than these; names it.
        ShapeError: There is no such activation; lists them.
    """

    def __init__(
        self, device: Device, up: Array, down: Array, *, activation: str = "gelu", gate: Array | None = None
    ) -> None:
        given = {"up": up, "down": down} | ({} if gate is None else {"gate": gate})
        for name, array in given.items():
            refuse_masked(array, name, "array.filled(value)")
        self._weights = {name: np.array(array) for name, array in given.items()}
        first = self._weights["up"]
        if first.ndim != 3 or not len(first):
            raise ValueError(f"up is {list(first.shape)}; expected [experts, width, inner], with one expert at least")
        if as_dtype(first.dtype).name not in ("f16", "bf16", "f32", "f64"):
            raise TypeError(f"up is {first.dtype}; pass weights of f16, bf16, f32 or f64 (up.astype('f4'))")
        experts, width, inner = first.shape
        for name, array in self._weights.items():
            shape = (experts, inner, array.shape[-1]) if name == "down" and array.ndim else (experts, width, inner)
            if array.shape != shape or array.dtype != first.dtype:
                raise ValueError(
                    f"{name} is {array.dtype}{list(array.shape)}, and up {first.dtype}{list(first.shape)}; expected "
                    f"{first.dtype}{list(shape)}"
                )
        tree = EpilogueVisitorTree()
        self._inner = tree.apply(activation) if gate is None else tree.gate("gate", activation)
        self._device = device
        self._refs = self._copied()

    def __len__(self) -> int:
        return len(self._weights["up"])

    def _copied(self) -> dict[str, Any]:
        return {name: self._device.put(array) for name, array in self._weights.items()}

    def __call__(self, rows: GpuRef, offsets: GpuRef) -> GpuRef:
        """The results of rows that are sorted by expert. Ops alone, so that a recording can take it.

        Args:
            rows: ``[rows, width]`` of the weights' dtype.
            offsets: i32 ``[experts + 1]``: the rows of expert ``e`` are ``offsets[e]`` to ``offsets[e + 1] - 1``.

        Returns:
            ``[rows, width]``.

        Raises:
            ShapeError: An array does not fit.
            GpuRefStale: ``rows`` or ``offsets`` were lost with their context.
        """
        if any(each.is_stale for each in self._refs.values()):
            self._refs = self._copied()
        product, weights = self._device.cutlass.grouped_gemm, self._refs
        inputs: dict[str, Any] = {"gate": product(rows, weights["gate"], offsets)} if "gate" in weights else {}
        hidden = product(rows, weights["up"], offsets, epilogue=self._inner, **inputs)
        return product(hidden, weights["down"], offsets)

    async def run(self, offsets: Indices, rows: Array) -> Array:
        """The results of a dispatch, on the host.

        Args:
            offsets: As for a call.
            rows: ``[rows, width]``; rounded to the weights' dtype.
        """
        put = self._device.put
        found: Array = await self(put(rows.astype(self._weights["up"].dtype)), put(offsets.astype(np.int32))).get()
        return found
