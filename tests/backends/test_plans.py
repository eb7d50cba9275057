"""Every message of a library has a plan in each backend that has the library, or a reason why not."""

import pytest

from callboard.core import registry
from callboard.core.op import OPS


@pytest.mark.parametrize("backend", ["cpu", "cuda", "torch:cpu"])
def test_every_message_has_a_plan_or_a_reason(backend: str) -> None:
    for each in ("cpu", "cuda"):
        list(registry.backend(each).libraries().values())  # imports all messages
    libraries = registry.backend(backend).libraries()
    missing = []
    for tag, op in OPS.items():
        library = libraries.get(tag.partition(".")[0]) if op.__module__.startswith("callboard.kernel.") else None
        if library is not None and op not in library.launch_table and op not in library.refused:
            missing.append(tag)
    assert missing == []


@pytest.mark.parametrize("backend", ["cpu", "cuda", "torch:cpu"])
def test_no_plan_is_refused_as_well(backend: str) -> None:
    libraries = registry.backend(backend).libraries()
    assert [op for cls in libraries.values() for op in cls.refused if op in cls.launch_table] == []
