"""scikit-learn's estimators that are written for the array API, on refs, with a context lost in the middle of one."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(
        importlib.util.find_spec("sklearn") is None or importlib.util.find_spec("array_api_compat") is None,
        reason="scikit-learn and array-api-compat are not installed; pip install scikit-learn array-api-compat",
    ),
]

PROGRAM = """
import os, signal, sys
from unittest import mock

import array_api_compat
import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

import callboard as cb
from callboard.arrays import linalg

sklearn.set_config(array_api_dispatch=True)
rng = np.random.default_rng(0)
x = rng.normal(size=(200, 6))
y = x @ np.arange(6.0) + rng.normal(size=200) * 0.1
ESTIMATORS = [
    (PCA(3, svd_solver="full"), None, "transform"),
    (PCA(3, svd_solver="covariance_eigh"), None, "transform"),
    (Ridge(solver="svd"), y, "predict"),
    (LinearDiscriminantAnalysis(), (y > 0).astype(int), "predict"),
    (LogisticRegression(), (y > 0).astype(int), "predict_proba"),
    (GaussianMixture(2, init_params="random_from_data", random_state=0, max_iter=5), None, "predict_proba"),
    (StandardScaler(), None, "transform"),
]


def fitted(estimator, put, target, method):
    data = put(x)
    found = clone(estimator).fit(data) if target is None else clone(estimator).fit(data, put(target))
    return np.asarray(getattr(found, method)(data))


with cb.sync.device(sys.argv[1], isolation="process", standby=None, max_restarts=None) as dev:
    assert array_api_compat.array_namespace(dev.put(x)) is dev.xp
    svd = linalg.svd
    for estimator, target, method in ESTIMATORS:
        expected = fitted(estimator, np.asarray, target, method)
        np.testing.assert_allclose(fitted(estimator, dev.put, target, method), expected, rtol=1e-6, atol=1e-8)
    classes = (y > 0).astype(int), (x[:, 5] > 0).astype(int)
    assert f1_score(*map(dev.put, classes)) == f1_score(*classes)
    killed = []

    def losing(*args, **options):
        if not killed:
            killed.append(dev.health().host_pid)
            os.kill(killed[0], signal.SIGKILL)
        return svd(*args, **options)

    estimator, target, method = ESTIMATORS[0]
    attempts = 0
    with mock.patch.object(linalg, "svd", losing):
        while True:
            attempts += 1
            try:
                found = fitted(estimator, dev.put, target, method)
                break
            except (cb.ContextLost, cb.GpuRefStale):
                assert attempts < 5
                dev.ready()
    assert killed and attempts > 1 and dev.stats().restarts == 1, (killed, attempts)
    np.testing.assert_allclose(found, fitted(estimator, np.asarray, target, method), rtol=1e-6, atol=1e-8)
print("fitted")
"""


@pytest.mark.timeout(130)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_estimators(device: str) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, device],
        env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "fitted", done.stdout + done.stderr
