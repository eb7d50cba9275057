"""A product that was met before is planned no second time, and ``stats`` shows it; the example of the package runs."""

import textwrap

import numpy as np
import pytest

import callboard as cb
import callboard.kernel.sparse_lt as sparse_lt


async def test_plans_are_kept_by_signature_and_not_by_value() -> None:
    async with cb.device("cpu", standby=None) as device:
        x, bias = device.put(np.eye(8, dtype="f4")), device.put(np.zeros(8, "f4"))
        layer = await device.sparse_lt.compress(x)
        for alpha in (1.0, 2.0, 3.0):
            await device.sparse_lt.linear(x, layer, bias=bias, alpha=alpha)
        plans = (await device.stats()).plans["sparse_lt"]
        assert (plans.entries, plans.misses) == (2, 2)
        found = plans.hits
        await device.sparse_lt.linear(x.T, layer, bias=bias)  # other strides
        await device.sparse_lt.linear(x, layer, bias=bias, activation="relu")
        plans = (await device.stats()).plans["sparse_lt"]
        assert (plans.entries, plans.misses, plans.hits) == (4, 4, found)


def test_the_example_of_the_package_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = textwrap.dedent((sparse_lt.__doc__ or "").partition("::\n")[2])
    exec(compile(example, "the docstring of callboard.kernel.sparse_lt", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip() == "(32, 128) 0.625"
