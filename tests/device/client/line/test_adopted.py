"""Arrays of other packages as refs: every dtype that a device has, memory that lives long enough, immutable arrays."""

import gc
import sys
import types
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests import lazily

import callboard as cb

torch = lazily.importorskip("torch", reason="torch is not installed")


def test_the_reason_is_told() -> None:
    with (
        cb.sync.device("cpu", isolation="thread") as cpu,
        pytest.raises(
            TypeError, match=r"adopt: the array \(torch\.Tensor\) cannot be read, its __dlpack__ raised BufferError"
        ) as e,
    ):
        cpu.adopt(torch.ones(3, requires_grad=True))
    assert isinstance(e.value.__cause__, BufferError)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "complex128", "bool"])
def test_tensors_are_adopted(name: str) -> None:
    with cb.sync.device("cpu", isolation="thread") as cpu:
        tensor = torch.ones((2, 3)).to(getattr(torch, name)).t()
        ref = cpu.adopt(tensor)
        assert ref.raw_device_ptr() == tensor.data_ptr()
        np.testing.assert_array_equal(ref.get().astype("c16"), np.ones((3, 2)))
        cpu.fill(ref, 0).result()
        assert not tensor.to(torch.complex128).any()
        np.testing.assert_array_equal(cpu.xp.from_dlpack(tensor).get().astype("c16"), np.zeros((3, 2)))
        for refused in (torch.ones(3, requires_grad=True), torch.eye(3).to_sparse(), torch.ones(3, device="meta")):
            with pytest.raises(TypeError, match="adopt: the array"):
                cpu.adopt(refused)


def test_an_exporter_that_makes_its_memory_at_the_call_is_kept() -> None:
    class Fresh(np.ndarray[Any, Any]):
        pass

    class Maker:
        made: Any = None

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **named: Any) -> Any:
            array = np.arange(4.0).view(Fresh)
            self.made = weakref.ref(array)
            return array.__dlpack__(**named)

    with cb.sync.device("cpu", isolation="thread") as cpu:
        maker = Maker()
        ref = cpu.adopt(maker)
        gc.collect()
        assert maker.made() is not None
        assert ref.get().tolist() == [0, 1, 2, 3]
        del ref
        for _ in range(1000):
            cpu.stats()
            if maker.made() is None:
                break
        assert maker.made() is None


class Immutable:
    """In place of ``jax.Array``: capsules of before version 1, whose memory must not be written."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self.array.__dlpack__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.array


def test_an_array_of_jax_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    jax: Any = types.ModuleType("jax")
    jax.Array = Immutable
    monkeypatch.setitem(sys.modules, "jax", jax)
    array = np.arange(3, dtype="f4")
    with cb.sync.device("cpu", isolation="thread") as cpu:
        ref = cpu.adopt(Immutable(array))
        cpu.fill(ref, 9).result()
        assert ref.get().tolist() == [9, 9, 9]
    assert array.tolist() == [0, 1, 2]


def test_arrays_of_jax() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    with cb.sync.device("cpu", isolation="thread") as cpu:
        for dtype in (jax.numpy.bfloat16, jax.numpy.float8_e4m3fn, jax.numpy.float8_e5m2, jax.numpy.float32):
            array = jax.numpy.arange(4).astype(dtype)
            for ref in (cpu.adopt(array), cpu.put(array), cpu.xp.asarray(array), cpu.xp.from_dlpack(array)):
                assert ref.get().astype("f4").tolist() == [0, 1, 2, 3]
        back = jax.numpy.from_dlpack(cpu.put(np.arange(4), dtype=ml_dtypes.bfloat16))
        assert np.asarray(back, "f4").tolist() == [0, 1, 2, 3]


def test_a_mask_is_not_adopted() -> None:
    masked = np.ma.MaskedArray([1.0, 2.0], mask=[True, False])
    with cb.sync.device("cpu", isolation="thread") as cpu:
        with pytest.raises(TypeError, match=r"adopt: .* masked elements"):
            cpu.adopt(masked)
        assert cpu.adopt(np.ma.MaskedArray([1.0, 2.0])).get().tolist() == [1, 2]
