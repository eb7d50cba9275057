"""Names that NumPy has and the standard has not: the error tells what to write."""

import numpy as np
import pytest

import callboard as cb
from callboard.arrays.introspection.unknown import INSTEAD
from callboard.arrays.namespace import Namespace


@pytest.mark.parametrize(
    "name, cure",
    [
        ("concatenate", "use concat"),
        ("norm", "use linalg.vector_norm or linalg.matrix_norm"),
        ("reshap", "the nearest names are reshape"),
        ("qqqqq", "2024.12$"),
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
        ) or ("xp.pi" in cure or "dev.rng" in cure)
