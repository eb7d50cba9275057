"""The sections of ``docs/coverage.md`` about ``dev.np``: NumPy's own tests, and the names that are left out."""

import collections
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callboard.numpylike.missing import LEFT_OUT
from callboard.numpylike.namespace import names

__all__ = ["sections"]

FIGURES = Path(__file__).parent.parent / "numpy_tests" / "figures.json"
HEAD = """\
## NumPy's own tests

The tests of the installed NumPy, run against `dev.np` on the CPU by `scripts/numpy-tests`. A test is chosen unless a
rule of `tools/numpy_tests/chosen.py` leaves it out, for the reason below.
"""


def sections() -> Iterator[str]:
    """The lines."""
    told: dict[str, Any] = json.loads(FIGURES.read_text("utf-8"))
    files = told["files"]
    yield HEAD
    chosen, passed = (sum(one[key] for one in files.values()) for key in ("chosen", "passed"))
    yield f"Of {chosen} chosen tests of NumPy {told['numpy']}, {passed} pass: {passed / chosen:.1%}."
    yield ""
    yield "| file | passed | chosen | share |"
    yield "|---|---|---|---|"
    for file, one in files.items():
        name = Path(file).with_suffix("").as_posix()
        yield f"| `{name}` | {one['passed']} | {one['chosen']} | {one['passed'] / max(one['chosen'], 1):.0%} |"
    reasons: collections.Counter[str] = collections.Counter()
    for one in files.values():
        reasons.update(one["left_out"])
    yield ""
    yield "| tests left out | why |"
    yield "|---|---|"
    for why, count in reasons.most_common():
        yield f"| {count} | {why} |"
    yield ""
    yield "### Names of NumPy that are left out"
    yield ""
    counts = ", ".join(f"{len(names(section))} of `np.{section}`" for section in ("linalg", "fft", "random"))
    yield f"`dev.np` has {len(names(''))} names, {counts}."
    yield ""
    yield "| why | names | use |"
    yield "|---|---|---|"
    for why, (use, text) in LEFT_OUT.items():
        yield f"| {why} | {', '.join(f'`{name}`' for name in text.split())} | {use} |"
