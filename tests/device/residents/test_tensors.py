"""Tensors of torch in results: their memory is described by their attributes where that says all, else by DLPack."""

from typing import Any

import numpy as np
import pytest
from tests import lazily

import callboard as cb
from callboard.core.dtype import DTYPES
from callboard.device.protocol.residents.foreign import host_memory
from callboard.device.protocol.residents.tensors import tensor_items, tensor_memory

torch = lazily.importorskip("torch", reason="torch is not installed")

SHARED = [name for name in DTYPES if not name.startswith(("f8", "f4"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_every_dtype_that_torch_has(name: str) -> None:
    tensor = torch.zeros((3, 4), dtype=getattr(torch, DTYPES[name].np.name))
    found = tensor_memory(tensor, on_host=True)
    assert found is not None
    address, layout = found
    assert address == tensor.data_ptr()
    assert (layout.dtype, layout.shape, layout.strides) == (DTYPES[name], (3, 4), (4, 1))


@pytest.mark.parametrize(
    "view", [lambda t: t.T, lambda t: t[1:, ::2], lambda t: t[0, 0], lambda t: t.expand(2, 3, 4), lambda t: t]
)
def test_views_are_described_as_by_dlpack(view: Any) -> None:
    tensor = view(torch.arange(12, dtype=torch.float32).reshape(3, 4))
    found = tensor_memory(tensor, on_host=True)
    assert found is not None
    assert found[0] == tensor.data_ptr()
    assert found[1].strides == tensor.stride()
    assert found == host_memory("test", tensor)[:2]


def of_a_subclass() -> Any:
    """Its class may do anything."""
    return torch.zeros(3).as_subclass(type("Subclass", (torch.Tensor,), {}))


@pytest.mark.parametrize(
    "other",
    [
        lambda: np.ones(3),
        lambda: torch.zeros(0),
        lambda: torch.zeros(3, requires_grad=True),
        lambda: torch.nn.Parameter(torch.zeros(3)),
        lambda: torch.zeros(3, dtype=torch.complex64).conj(),
        lambda: torch.zeros(3, dtype=torch.complex64).conj().imag,
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.zeros(3, device="meta"),
        of_a_subclass,
    ],
)
def test_what_attributes_do_not_say(other: Any) -> None:
    array = other()
    assert tensor_memory(array, on_host=True) is None
    assert tensor_memory(array, on_host=False) is None


def test_a_tensor_of_the_host_is_not_on_a_device() -> None:
    assert tensor_memory(torch.zeros(3), on_host=False) is None


@pytest.mark.parametrize("name", [name for name in SHARED if name != "bf16"])
def test_torch_gives_the_items_of_a_tensor_in_host_memory(name: str) -> None:
    tensor = torch.arange(12).to(getattr(torch, DTYPES[name].np.name)).reshape(3, 4).T
    items = tensor_items(tensor, None)
    assert items is not None
    np.testing.assert_array_equal(items, np.arange(12).astype(DTYPES[name].np).reshape(3, 4).T, strict=True)


@pytest.mark.parametrize(
    "other",
    [
        lambda: np.ones(3),
        lambda: torch.zeros(3, dtype=torch.bfloat16),
        lambda: torch.zeros(3, requires_grad=True),
        lambda: torch.zeros(3, dtype=torch.complex64).conj(),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.zeros(3, device="meta"),
        of_a_subclass,
    ],
)
def test_other_arrays_are_copied_by_an_op(other: Any) -> None:
    assert tensor_items(other(), None) is None
    assert tensor_items(torch.zeros(3), 0) is None  # not on the GPU


@pytest.mark.gpu
def test_small_tensors_on_the_gpu_are_copied_by_torch() -> None:
    small, large = torch.arange(6, device="cuda").reshape(2, 3), torch.zeros(1 << 20, device="cuda")
    np.testing.assert_array_equal(tensor_items(small.T, 0), np.arange(6).reshape(2, 3).T, strict=True)
    assert tensor_items(large, 0) is None
    assert tensor_items(small, 1) is None
    assert tensor_items(small, None) is None


class Tensors(cb.ResidentActor):
    """Gives tensors to its caller."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx

    def counted(self, rows: int, columns: int) -> Any:
        return self.ctx.host(self._made(rows, columns))

    def turned(self, rows: int, columns: int) -> Any:
        return [self.ctx.host(self._made(rows, columns).T), "turned"]

    def reused(self) -> Any:
        """Its memory may be the next tensor's as soon as the method has returned."""
        return {"first": self.ctx.host(self._made(300, 300) + 1), "second": self.ctx.host(self._made(300, 300) + 2)}

    def trained(self) -> Any:
        return self.ctx.host(self._made(2, 2).requires_grad_())

    def _made(self, rows: int, columns: int) -> Any:
        count = rows * columns
        return torch.arange(count, dtype=torch.float32, device=self.ctx.torch_device).reshape(rows, columns)


async def test_tensors_of_all_sizes_arrive_as_arrays(dev: cb.Device) -> None:
    actor = dev.actor_of(cb.Props(Tensors))
    for _ in range(3):  # memory for a large result is asked for at first, and comes with the call from then on
        for rows, columns in ((0, 4), (1, 1), (3, 5), (200, 300)):
            expected = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            np.testing.assert_array_equal(await actor.call(Tensors.counted, rows, columns), expected, strict=True)
            np.testing.assert_array_equal((await actor.call(Tensors.turned, rows, columns))[0], expected.T, strict=True)
    got = await actor.call(Tensors.reused)
    base = np.arange(90_000, dtype=np.float32).reshape(300, 300)
    np.testing.assert_array_equal(got["first"], base + 1, strict=True)
    np.testing.assert_array_equal(got["second"], base + 2, strict=True)


@pytest.mark.slow
async def test_a_tensor_that_requires_a_gradient_is_refused(dev: cb.Device) -> None:
    actor = dev.actor_of(cb.Props(Tensors))
    with pytest.raises(TypeError, match="grad"):
        await actor.call(Tensors.trained)
    assert actor.restarts == 0
