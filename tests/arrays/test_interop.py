"""Libraries that are written for the standard take refs: SciPy's functions that dispatch, in a process of its own.

SciPy reads ``SCIPY_ARRAY_API`` when it is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import callboard as cb

PROGRAM = """
import sys
import numpy as np, scipy.cluster.vq, scipy.fft, scipy.integrate, scipy.signal, scipy.special, scipy.stats
import callboard as cb

CASES = {
    "fft": lambda x: scipy.fft.fft(x),
    "rfftn": lambda x: scipy.fft.rfftn(x),
    "logsumexp": lambda x: scipy.special.logsumexp(x, axis=1),
    "softmax": lambda x: scipy.special.softmax(x, axis=1),
    "zscore": lambda x: scipy.stats.zscore(x),
    "skew": lambda x: scipy.stats.skew(x),
    "gmean": lambda x: scipy.stats.gmean(abs(x)),
    "pearsonr": lambda x: scipy.stats.pearsonr(x[:, 0], x[:, 1]).statistic,
    "hilbert": lambda x: scipy.signal.hilbert(x[:, 0]),
    "trapezoid": lambda x: scipy.integrate.trapezoid(x, axis=0),
    "whiten": lambda x: scipy.cluster.vq.whiten(x),
}
host = np.random.default_rng(0).normal(size=(6, 4))
with cb.sync.device(sys.argv[1], standby=None) as device:
    ref = device.array(host)
    for name, function in CASES.items():
        got = function(ref)
        assert isinstance(got, cb.GpuRef), name
        np.testing.assert_allclose(got.get(), function(host), rtol=1e-9, atol=1e-12, err_msg=name)
print(len(CASES))
"""
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("device", DEVICES)
def test_functions_of_scipy_take_refs(device: str) -> None:
    source = str(Path(cb.__file__).parent.parent)
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, device],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["11"]


def test_the_namespace_has_the_name_of_a_module(session: cb.sync.Device) -> None:
    """By which ``array_api_compat`` tells namespaces from each other."""
    assert session.xp.__name__ == f"callboard.xp.{session.name}"
