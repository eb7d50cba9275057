"""Names that NumPy has and the standard has not: the error tells what to write."""

import inspect
import re
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.arrays import linalg
from callboard.arrays.introspection.unknown import INSTEAD
from callboard.arrays.namespace import Namespace
from callboard.core.ref.missing import METHODS


@pytest.mark.parametrize(
    "name, cure",
    [
        ("concatenate", "use concat"),
        ("norm", "use linalg.vector_norm or linalg.matrix_norm"),
        ("reshap", "the nearest names are reshape"),
        ("qqqqq", "2025.12$"),
    ],
)
def test_a_name_of_numpy_is_answered_with_the_standards(name: str, cure: str) -> None:
    with cb.sync.device("cpu") as dev:
        for namespace in (dev.xp, cb.xp):
            with pytest.raises(AttributeError, match=f"xp has no '{name}'.*{cure}"):
                getattr(namespace, name)
            assert not hasattr(namespace, name)
        with pytest.raises(AttributeError, match=r"xp.linalg has no 'norm'.*linalg.vector_norm"):
            getattr(dev.xp.linalg, "norm")  # noqa: B009 - type checkers know that it is not there


def test_the_table_names_what_there_is() -> None:
    for name, cure in INSTEAD.items():
        assert hasattr(np, name) or hasattr(np.linalg, name)
        assert not hasattr(Namespace, name)
        words = cure.replace("linalg.", "").replace(",", " ").replace("(", " ").split()
        assert any(
            hasattr(Namespace, word) or hasattr(Namespace.linalg, word) for word in words if word.isidentifier()
        ) or any(own in cure for own in ("xp.pi", "dev.rng", "dev.cub", "cb.elementwise"))


def test_numpys_functions_and_methods_name_what_computes_on_the_device() -> None:
    with cb.sync.device("cpu") as dev:
        x: Any = dev.array(np.eye(2))
        for function, told in (
            (np.exp, r"np.exp of .* compute there, `cb.xp.exp`"),
            (np.arctan, "np.arctan of .* compute there, `cb.np.arctan`"),
            (np.linalg.svd, "compute there, `cb.xp.linalg.svd`"),
            (np.linalg.norm, "compute there, `cb.np.linalg.norm`"),
            (np.fft.rfft, "compute there, `cb.xp.fft.rfft`"),
            (np.packbits, r"compute there \(np has no 'packbits' .*use x.get\(\), then numpy\)"),
        ):
            with pytest.raises(TypeError, match=told):
                function(x)
        for name, told in (
            ("resize", r"np\.resize\(x, shape\)"),
            ("tofile", r"x\.get\(\)\.tofile"),
            ("flags", r"await ref\.get\(\)"),
        ):
            with pytest.raises(AttributeError, match=rf"^\.{name} of a GpuRef \(f64\[2, 2\] on cpu:0\).*{told}"):
                getattr(x, name)
            assert not hasattr(x, name)


def test_the_methods_that_are_named_exist() -> None:
    for name, cure in METHODS.items():
        assert hasattr(np.ndarray, name)
        assert not callable(getattr(cb.GpuRef, name, None))
        for path in re.findall(r"\bxp\.([a-z_.]+)", cure):
            assert attrgetter(path)(Namespace)


def test_linear_algebra_has_all_functions_of_its_module() -> None:
    functions = {name for name in linalg.__all__ if name.islower()}
    assert functions == {name for name in dir(Namespace.linalg) if not name.startswith("_")}
    assert all(inspect.unwrap(getattr(Namespace.linalg, name)) is getattr(linalg, name) for name in functions)
