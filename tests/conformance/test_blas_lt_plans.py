"""A product that was met before is planned no second time, and ``stats`` shows it; the example of the package runs."""

import textwrap

import numpy as np
import pytest

import callboard as cb
import callboard.kernel.blas_lt as blas_lt


async def test_plans_are_kept_by_signature_and_not_by_value() -> None:
    async with cb.device("cpu", standby=None) as device:
        x, z = device.put(np.ones((8, 8), "f4")), device.put(np.zeros(8, "f4"))
        for alpha in (1.0, 2.0, 3.0):
            await device.blas_lt.matmul(x, x, bias=z, alpha=alpha, epilogue="gelu_bias")
        plans = (await device.stats()).plans["blas_lt"]
        assert (plans.entries, plans.misses) == (1, 1)
        found = plans.hits
        await device.blas_lt.matmul(x, x.T, bias=z, epilogue="gelu_bias")  # other strides
        await device.blas_lt.matmul(x, x, bias=z, epilogue="relu_bias")  # another epilogue
        plans = (await device.stats()).plans["blas_lt"]
        assert (plans.entries, plans.misses, plans.hits) == (3, 3, found)


def test_the_example_of_the_package_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = textwrap.dedent((blas_lt.__doc__ or "").partition("::\n")[2])
    exec(compile(example, "the docstring of callboard.kernel.blas_lt", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip() == "[(128, 10), (64, 32), (32,), (32, 10), (10,)]"
