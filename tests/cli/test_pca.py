import numpy as np
import pytest

import callboard as cb
from callboard.cli.demo.digits import load_digits
from callboard.cli.demo.pca import pose, step, variances
from callboard.cli.demo.settings import first_block


def test_digits_are_the_1797_of_uci() -> None:
    digits = load_digits()
    assert digits.images.shape == (1797, 64)
    assert digits.images.min() == 0
    assert digits.images.max() == 16
    assert np.bincount(digits.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


async def test_problem_is_numpys_covariance() -> None:
    samples = np.random.default_rng(2).standard_normal((40, 6)) + 3.0
    async with cb.device("cpu") as device:
        problem = pose(device, samples)
        centred = await problem.centred.get()
        covariance, total = await problem.covariance.get(), await problem.total.get()
    assert centred == pytest.approx(samples - samples.mean(axis=0))
    assert covariance == pytest.approx(np.cov(samples.T))
    assert float(total) == pytest.approx(np.trace(np.cov(samples.T)))


async def test_steps_converge_to_numpys_eigenvalues() -> None:
    samples = np.random.default_rng(3).standard_normal((200, 5)) * [16.0, 8.0, 4.0, 2.0, 1.0]
    async with cb.device("cpu") as device:
        problem = pose(device, samples)
        block = device.put(first_block(3, 5))
        for _ in range(40):
            block = step(device, problem, block)
        rows, found = await block.get(), await variances(device, problem, block).get()
    assert rows @ rows.T == pytest.approx(np.eye(3), abs=1e-12)
    assert found == pytest.approx(np.linalg.eigvalsh(np.cov(samples.T))[::-1][:3])
