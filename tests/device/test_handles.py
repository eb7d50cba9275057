"""Copies and pickles of handles: a copy is the handle itself, with its device, loop and threads; none is pickled."""

import copy
import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest

import callboard as cb


class Nothing(cb.ResidentActor):
    def ping(self) -> int:
        return 1


def check(handles: dict[str, Any]) -> None:
    for name, handle in handles.items():
        assert copy.copy(handle) is handle, name
        assert copy.deepcopy(handle) is handle, name
        assert copy.deepcopy({"model": [handle]})["model"][0] is handle, name
        for dumps in (pickle.dumps, cloudpickle.dumps):
            with pytest.raises(TypeError, match="is a handle inside one process and cannot be pickled; "):
                dumps(handle)


async def test_handles_of_a_program() -> None:
    async with cb.System("handles") as system:
        device = await system.device("cpu", isolation="thread")
        resident = device.actor_of(cb.Props(Nothing))
        reply = resident.call(Nothing.ping)
        handles = {
            "system": system,
            "device": device,
            "xp": device.xp,
            "fft": device.xp.fft,
            "library": device.blas,
            "resident": resident,
            "reply": reply,
            "server": cb.DynamicBatchingServer(sum, max_batch=2),
            "recording": device.record(),
            "generation": device.watch_generation(),
            "pool": device.pinned_pool(),
            "value": device.per_generation(lambda device: device.zeros(3)),
        }
        check(handles)
        assert copy.deepcopy(device.blas.gemm).__self__ is device.blas
        assert await copy.deepcopy(resident).call(Nothing.ping) == await reply == 1


def test_handles_of_a_blocking_program() -> None:
    with cb.sync.System("handles") as system:
        device = system.device("cpu", isolation="thread")
        resident = device.actor_of(cb.Props(Nothing))
        check(
            {
                "system": system,
                "device": device,
                "xp": device.xp,
                "library": device.blas,
                "resident": resident,
                "pool": device.pinned_pool(),
                "value": device.per_generation(lambda device: device.zeros(3)),
            }
        )
        with pytest.raises(TypeError, match=r"ref\.get\(\)\), open the device there .*ref\.token\(\)"):
            pickle.dumps(device.xp)


def test_parameters_of_an_estimator() -> None:
    class Estimator:
        def __init__(self, xp: Any, weights: Any) -> None:
            self.xp = xp
            self.weights = weights

    with cb.sync.device("cpu", isolation="thread") as device:
        first = Estimator(device.xp, device.put(np.arange(3.0)))
        second = copy.deepcopy(first)
        second.weights += 1
        assert second.xp is first.xp
        assert first.weights.get().tolist() == [0, 1, 2]
        assert second.weights.get().tolist() == [1, 2, 3]


async def test_a_copy_of_a_ref_is_an_array_of_its_own(cpu_device: cb.Device) -> None:
    ref = cpu_device.put(np.ones(4, np.float32))
    held = {"weights": ref}
    copies = [copy.copy(ref), copy.deepcopy(ref), copy.deepcopy(held)["weights"], copy.copy(ref.reshape(2, 2).T)]
    await cpu_device.fill(ref, 7)
    for one in copies:
        assert (await one.get()).tolist() == np.ones(one.shape).tolist()
    with pytest.raises(TypeError, match=r"cannot be pickled; pass ref\.token\(\)"):
        pickle.dumps(held)
    ref.free()
    with pytest.raises(cb.GpuRefStale, match="freed"):
        copy.copy(ref)
