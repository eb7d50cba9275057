"""Names and texts that exporters get: what is no text is refused where it is given, or replaced; none blinds them."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.telemetry.packets import Trace

import callboard as cb
from callboard.cli.serving.merging import Totals
from callboard.events.kinds import ACTOR, BATCH, LOST, MARK, REQUEST
from callboard.events.ring import now
from callboard.serve import App, Tensor
from callboard.telemetry.export.otel.metrics import metrics_of
from callboard.telemetry.export.prometheus import Text
from callboard.telemetry.export.texts import json_bytes
from callboard.telemetry.families import Family
from callboard.telemetry.local.places import sockets

HALF = "a\udcff"
X = [Tensor("x", "FP32", [-1])]


def double(x: Any) -> Any:
    return x


GIVEN: dict[str, Callable[[Any], Any]] = {
    "a DynamicBatchingServer": lambda name: cb.DynamicBatchingServer(double, name=name),
    "a FairShareScheduler": lambda name: cb.FairShareScheduler(double, name=name),
    "a system": lambda name: cb.System(name),
    "an app": lambda name: App(name),
    "a model": lambda name: App().add_model(name, double, inputs=X, outputs=X),
    "a version": lambda name: App().add_model("m", double, inputs=X, outputs=X, version=name),
}


@pytest.mark.parametrize("what", [pytest.param(what, id=what) for what in GIVEN])
@pytest.mark.few(len(GIVEN))
def test_a_name_that_is_no_text_is_refused_where_it_is_given(what: str) -> None:
    for name, why in (
        (HALF, r"is 'a\\udcff', which has half of a surrogate pair"),
        ("x" * 257, "at most 256 characters"),
    ):
        with pytest.raises(ValueError, match=f"the name of {what} .*{why}"):
            GIVEN[what](name)
    with pytest.raises(TypeError, match=f"the name of {what} is 5; pass a str"):
        GIVEN[what](5)


async def test_the_name_of_an_application_is_text() -> None:
    async with cb.System("app") as system:
        with pytest.raises(ValueError, match="half of a surrogate pair"):
            cb.observe(system, HALF)
        assert cb.observe(system, "ümlaut").node == "ümlaut"


# -- what is in events and labels all the same -------------------------------------------------------------------------


def hostile() -> list[tuple[Any, ...]]:
    """Events with texts of errors, classes and servers that are no Unicode."""
    bodies: list[tuple[Any, ...]] = [
        (ACTOR, HALF, "failed", HALF),
        (LOST, HALF, 1, HALF, HALF, 3, [HALF], {HALF: 3}),
        (MARK, HALF, HALF, {HALF: HALF}),
        (BATCH, HALF, 3, 0.1, True, None, ()),
        (REQUEST, "good", 1, 0.1, 0.2, "completed", None, None),
    ]
    return [(number, now(), *body) for number, body in enumerate(bodies)]


async def test_texts_of_events_are_replaced_in_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines, trace = tmp_path / "events.jsonl", tmp_path / "app.pftrace"
    async with cb.System("app") as system:
        telemetry = cb.observe(system, jsonl=lines, perfetto=trace)
        telemetry.pump.ring.extend(hostile())
    found = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    assert [each["text"] for each in found if each["kind"] == "lost"] == ["a?"]
    assert [each["server"] for each in found if each["kind"] == "request"] == ["good"]
    assert "batch of 3" in {each.name for each in Trace(trace.read_bytes()).slices}
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_labels_are_replaced_and_a_bad_family_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    family = Family("callboard_a", "gauge", "", ("x",), "A.")
    bad = family._replace(name="callboard_b")
    text = Text()
    groups: list[Any] = [(bad, [((7,), 1)]), (family, [((HALF,), 1)]), (bad._replace(kind="histogram"), [(("y",), 3)])]
    for _ in range(2):
        assert text.render(groups) == '# HELP callboard_a A.\n# TYPE callboard_a gauge\ncallboard_a{x="a?"} 1\n'
    assert len([each for each in caplog.records if "callboard_b" in each.getMessage()]) == 1


def test_values_of_views_are_replaced() -> None:
    assert json.loads(json_bytes({HALF: [HALF, 1.5, {"b": "é"}]})) == {"a?": ["a?", 1.5, {"b": "é"}]}


def test_labels_and_attributes_for_a_collector_are_replaced() -> None:
    pytest.importorskip("opentelemetry.sdk")
    family = Family("callboard_a", "gauge", "", ("x",), "A.")
    [metric] = metrics_of([(family, [((HALF,), 1)])], None, 0, 1).resource_metrics[0].scope_metrics[0].metrics
    assert metric.data.data_points[0].attributes == {"x": "a?"}


def test_figures_of_workers_with_other_separators_of_lines_are_joined() -> None:
    totals = Totals()
    text = '# HELP callboard_a A.\n# TYPE callboard_a counter\ncallboard_a{x="é\u2028\x85 b"} 1\n'
    totals.note(1, text)
    totals.note(2, text)
    assert 'callboard_a{x="é\u2028\x85 b"} 2\n' in totals.exposition({})


class Failing:
    """A source that fails."""

    name = "failing"

    async def refresh(self) -> None:
        raise RuntimeError("refresh")

    def collect(self) -> Any:
        raise RuntimeError("collect")

    def figures(self) -> Any:
        raise RuntimeError("figures")


async def test_a_source_that_fails_and_a_server_of_a_hostile_name_leave_views_and_scrapes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cb.System("app") as system, cb.DynamicBatchingServer(double, name="good") as server:
        server.name = HALF  # around the check
        telemetry = cb.observe(system)
        telemetry.add(Failing())
        await telemetry.refresh()
        text = Text().render(telemetry.collect())
        assert 'server="a?"' in text
        assert "callboard_events_total" in text
        reader, writer = await asyncio.open_unix_connection(str(sockets()[-1]), limit=1 << 24)
        writer.write(b"\n")
        snapshot = json.loads(await reader.readline())
        writer.close()
        assert "a?" in [each["name"] for each in snapshot["blueprints"]]
    assert len([each for each in caplog.records if "failing" in each.getMessage()]) == 1
