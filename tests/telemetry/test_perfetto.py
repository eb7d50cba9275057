"""Trace files: tracks, slices and arrows, counted by an independent decoder and by Perfetto's own protos."""

from pathlib import Path

import pytest
from tests.telemetry.packets import Trace

from callboard.events.kinds import ACTIVITY, ACTOR, BATCH, DEAD, LOST, MARK, MESSAGE, OP, RECOVERED, STOPPED, TRACED
from callboard.events.ring import Event
from callboard.telemetry.export.perfetto import Perfetto


class Go:
    """A message."""


def trace_of(path: Path, events: list[Event]) -> Trace:
    file = Perfetto(path, "node-1")
    file.take(events[:3])
    file.take(events[3:])
    file.close()
    return Trace(path.read_bytes())


SECOND = 10**9
EVENTS: list[Event] = [
    (0, 5 * SECOND, ACTOR, "/a/doer", "started", ""),
    (1, 11 * SECOND, OP, "cuda:0", 7, "blas.gemm", "/a/doer"),
    (2, 12 * SECOND, OP, "cuda:0", 9, "blas.gemm", "/a/doer"),
    (3, 13 * SECOND, OP, "cuda:0", 11, "fft.fft", ""),
    (4, 14 * SECOND, MESSAGE, "/a/doer", Go, 10 * SECOND, True),
    (
        *(5, 20 * SECOND, TRACED, "cuda:0"),
        [
            (7, "blas.gemm", 3, 11.0, 11.5, 16.0, True, 12.0, 1.0),
            (9, "blas.gemm", 3, 12.0, 12.5, 16.0, True, 13.0, 1.5),
            (11, "fft.fft", 4, 13.0, 13.5, 15.0, False, 0.0, 0.0),
        ],
    ),
    (6, 21 * SECOND, BATCH, "echo", 4, 3.0, True),
    (7, 22 * SECOND, BATCH, "echo", 2, 2.0, False),  # began while the first one ran
    (
        8,
        23 * SECOND,
        LOST,
        "cuda:0",
        1,
        "ContextPoisoned",
        "illegal address",
        3,
        ["blas.gemm (x.py:1)"],
        {"blas.gemm": 3},
    ),
    (9, 24 * SECOND, RECOVERED, "cuda:0", 2, "hot", 0.25),
    (10, 25 * SECOND, DEAD, "/a/doer", Go, "stopped"),
    (11, 26 * SECOND, MARK, "gpu 0", "Xid 31", {"code": 31}),
    (12, 27 * SECOND, STOPPED, "cuda:0", "closed"),
]


def test_tracks_slices_and_arrows(tmp_path: Path) -> None:
    trace = trace_of(tmp_path / "t.pftrace", EVENTS)
    names = {name: trace.tracks.get(parent, ("", 0))[0] for name, parent in trace.tracks.values()}
    assert names == {
        "node-1": "",
        "/a/doer": "node-1",
        "cuda:0": "node-1",
        "blas": "cuda:0",
        "fft": "cuda:0",
        "stream 3": "cuda:0",
        "stream 4": "cuda:0",
        "echo batches": "node-1",
        "gpu 0": "node-1",
    }
    shown = [(each.track, each.name, each.began / 1e9, each.ended and each.ended / 1e9) for each in trace.slices]
    assert shown == [
        ("/a/doer", "Go", 10.0, 14.0),
        ("blas", "blas.gemm", 11.0, 11.5),
        ("stream 3", "blas.gemm", 12.0, 13.0),
        ("blas", "blas.gemm", 12.0, 12.5),
        ("stream 3", "blas.gemm", 13.0, 14.5),
        ("fft", "fft.fft", 13.0, 13.5),
        ("stream 4", "fft.fft", 13.5, 15.0),  # without events of the device: from the launch to the known end
        ("echo batches", "batch of 4", 18.0, 21.0),
        ("echo batches", "batch of 2: failed", 20.0, 22.0),
        ("cuda:0", "generation 1 lost, 3 ops failed", 23.0, None),
        ("cuda:0", "generation 2 ready (hot, 0.250 s)", 24.0, None),
        ("/a/doer", "dead letter: stopped", 25.0, None),
        ("gpu 0", "Xid 31", 26.0, None),
        ("cuda:0", "stopped", 27.0, None),
    ]
    assert len([name for name, _ in trace.tracks.values() if name == "echo batches"]) == 2  # side by side
    arrows = [(each.track, each.out, each.into) for each in trace.slices if each.out or each.into]
    assert arrows == [
        ("/a/doer", [7, 9], []),
        *(("blas", [7], []), ("stream 3", [], [7]), ("blas", [9], []), ("stream 3", [], [9])),
        *(("fft", [11], []), ("stream 4", [], [11])),
    ]


RECORDED: list[Event] = [
    (0, 5 * SECOND, TRACED, "cuda:0", [(3, "blas.gemm", 3, 4.0, 4.5, 5.0, True, 0.0, 0.0)]),  # before CUPTI records
    (1, 6 * SECOND, ACTIVITY, "cuda:0", []),
    (2, 20 * SECOND, TRACED, "cuda:0", [(7, "blas.gemm", 3, 11.0, 11.5, 16.0, True, 12.0, 1.0)]),
    (
        *(3, 21 * SECOND, ACTIVITY, "cuda:0"),
        [
            ("kernel", "_Z4gemm", 7, "blas.gemm", 12.0, 0.5, 7, 0),
            ("memcpy", "htod", 0, "", 12.25, 0.5, 8, 4096),
            ("memset", "", 7, "blas.gemm", 11.75, 0.125, 7, 64),
            ("kernel", "_Z4tail", 7, "blas.gemm", 12.25, 0.5, 7, 0),  # beside the first, as in a graph
            ("driver", "cuLaunchKernel", 7, "blas.gemm", 11.0, 0.25, 0, 0),
        ],
    ),
]


def test_what_cupti_recorded(tmp_path: Path) -> None:
    trace = trace_of(tmp_path / "t.pftrace", RECORDED)
    kernels = 7 | 1 << 62
    shown = [(each.track, each.name, each.began / 1e9, (each.ended or 0) / 1e9) for each in trace.slices]
    assert shown[4:] == [
        ("driver calls", "cuLaunchKernel", 11.0, 11.25),
        ("CUPTI stream 7", "memset", 11.75, 11.875),
        ("CUPTI stream 7", "_Z4gemm", 12.0, 12.5),
        ("CUPTI stream 8", "memcpy htod", 12.25, 12.75),
        ("CUPTI stream 7", "_Z4tail", 12.25, 12.75),
    ]
    assert len([name for name, _ in trace.tracks.values() if name == "CUPTI stream 7"]) == 2
    arrows = [(each.name, each.out, each.into) for each in trace.slices if each.out or each.into]
    assert arrows == [
        ("blas.gemm", [3], []),
        ("blas.gemm", [], [3]),
        ("blas.gemm", [7, kernels], []),
        ("blas.gemm", [], [7]),
        *((name, [kernels], []) for name in ("memset", "_Z4gemm", "_Z4tail")),
    ]


@pytest.mark.parametrize("events", [EVENTS, RECORDED], ids=["all", "recorded"])
def test_perfettos_own_protos_read_the_same(tmp_path: Path, events: list[Event]) -> None:
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    ours = trace_of(tmp_path / "t.pftrace", events)
    theirs = protos.Trace.FromString((tmp_path / "t.pftrace").read_bytes())
    assert [p.track_descriptor.uuid for p in theirs.packet if p.HasField("track_descriptor")] == list(ours.tracks)
    begun = [p for p in theirs.packet if p.HasField("track_event") and p.track_event.type in (1, 3)]
    assert [(p.timestamp, list(p.track_event.flow_ids), list(p.track_event.terminating_flow_ids)) for p in begun] == [
        (each.began, each.out, each.into) for each in ours.slices
    ]


def test_many_ops_of_one_message_have_some_arrows(tmp_path: Path) -> None:
    events: list[Event] = [(n, n, OP, "cpu:0", n, "blas.gemm", "/a") for n in range(1, 1000)]
    trace = trace_of(tmp_path / "t.pftrace", [*events, (1000, 2000, MESSAGE, "/a", Go, 0, True)])
    [message] = trace.slices
    assert message.out == list(range(1, 65))
