"""The table of metrics: names, units and types fit each other, and ``docs/metrics.md`` shows every row."""

from pathlib import Path

import pytest

from callboard.telemetry import TABLE
from callboard.telemetry.families import Family

ROOT = Path(__file__).parents[2]
UNITS = {"seconds", "bytes", "ratio", "tokens", "watts", "joules", "celsius", "hertz", ""}


def row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {family.unit or '-'} | {labels or '-'} | {family.help} |"


def test_the_page_has_every_row_and_no_other() -> None:
    lines = (ROOT / "docs" / "metrics.md").read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("| `")] == [row(family) for family in TABLE.values()]


@pytest.mark.parametrize("family", TABLE.values(), ids=TABLE)
def test_names_follow_prometheus(family: Family) -> None:
    assert family.name.startswith("callboard_")
    assert family.kind in {"counter", "gauge", "histogram"}
    assert family.unit in UNITS
    assert (family.kind == "counter") == family.name.endswith("_total")
    if family.unit:
        assert family.name.removesuffix("_total").endswith(f"_{family.unit}")
    assert len(set(family.labels)) == len(family.labels)
    assert "le" not in family.labels
    assert family.help.endswith(".")
