"""Torch's random numbers, which the threads of a process share, and memory that a step may keep."""

import threading

import numpy as np
import pytest

from callboard.train.batches import copied
from callboard.train.replicas.randomness import building, seed_of, seeded

torch = pytest.importorskip("torch")


def test_a_model_is_built_without_the_seeds_of_other_devices() -> None:
    torch.manual_seed(7)
    expected = torch.rand(4)
    seeding = threading.Event()

    def step() -> None:
        seeding.set()
        seeded(seed_of(0, 1, 0), torch.device("cpu"))

    other = threading.Thread(target=step)
    with building(7):
        first = torch.rand(2)
        other.start()
        seeding.wait(30)
        other.join(0.05)  # it waits for the model: it cannot end here
        waits = other.is_alive()
        rest = torch.rand(2)
    other.join(30)
    assert waits
    assert torch.equal(torch.cat([first, rest]), expected)


def test_a_batch_is_copied_into_memory_of_torch() -> None:
    memory = np.zeros(4 * 65 + 1, "u1")
    array = memory[1:261].view("f4")  # not aligned
    array[:] = 1
    for dtype in (None, torch.float32):
        tensor = copied(array, torch.device("cpu"), dtype)
        assert tensor.data_ptr() % 64 == 0
        array[:] = 2
        assert tensor.tolist() == [1.0] * 65
        array[:] = 1
    array.flags.writeable = False
    assert copied(array, torch.device("cpu"), torch.float64).sum() == 65
