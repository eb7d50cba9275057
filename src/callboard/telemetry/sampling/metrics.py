"""``groups_of``: the metrics of a snapshot, as the table names them."""

from collections.abc import Iterator, Sequence
from typing import Any

from callboard.telemetry.families import Group
from callboard.telemetry.sampling.blueprints import ENDS, server_stats
from callboard.telemetry.sampling.counting import Counts
from callboard.telemetry.sampling.devices import called_as
from callboard.telemetry.sampling.others import Others
from callboard.telemetry.sampling.snapshot import ActorFigures, DeviceFigures, ProcessFigures, Snapshot
from callboard.telemetry.table import family

__all__ = ["groups_of"]


def groups_of(snapshot: Snapshot, counts: Counts, others: Others) -> list[Group]:
    """All metrics of a snapshot; histograms come from the counts and the servers."""
    return [
        *_ring(snapshot),
        _group("callboard_actors", [((snapshot.system,), len(snapshot.actors))]),
        *_actors(others.rows(snapshot.actors)),
        _group("callboard_dead_letters_total", [((reason,), n) for reason, n in snapshot.dead_letters.items()]),
        *_devices(snapshot.devices),
        *_ops(snapshot.devices),
        *_histograms(counts),
        *_servers(),
        *_processes(snapshot.processes),
    ]


def _group(name: str, series: Sequence[tuple[tuple[str, ...], Any]]) -> Group:
    return family(name), series


def _ring(snapshot: Snapshot) -> Iterator[Group]:
    ring = snapshot.ring
    yield _group("callboard_events_waiting", [((), ring.waiting)])
    yield _group("callboard_events_total", [((), ring.drained)])
    yield _group("callboard_events_dropped_total", [((), ring.dropped)])


def _actors(actors: list[ActorFigures]) -> Iterator[Group]:
    paths = [(actor.path,) for actor in actors]
    for name, values in (
        ("callboard_actor_mailbox_depth", [actor.depth for actor in actors]),
        ("callboard_actor_messages_total", [actor.handled for actor in actors]),
        ("callboard_actor_failures_total", [actor.failed for actor in actors]),
        ("callboard_actor_busy_seconds_total", [actor.busy for actor in actors]),
        ("callboard_actor_wait_seconds", [actor.wait for actor in actors]),
        ("callboard_actor_restarts_total", [actor.restarts for actor in actors]),
    ):
        yield _group(name, list(zip(paths, values, strict=True)))


def _devices(devices: list[DeviceFigures]) -> Iterator[Group]:
    yield _group("callboard_device_info", [((each.name, each.system, each.backend, each.uuid), 1) for each in devices])
    for name, values in (
        ("callboard_device_ready", [int(each.state == "ready") for each in devices]),
        ("callboard_context_generation", [each.generation for each in devices]),
        ("callboard_context_losses_total", [each.losses for each in devices]),
        ("callboard_device_standbys_ready", [each.standbys_ready for each in devices]),
        ("callboard_device_ops_queued", [each.queued for each in devices]),
        ("callboard_device_ops_completed_total", [each.completed for each in devices]),
        ("callboard_device_ops_failed_total", [each.failed for each in devices]),
        ("callboard_device_out_of_memory_total", [each.out_of_memory for each in devices]),
        ("callboard_device_ops_parked", [each.parked for each in devices]),
        ("callboard_device_buffers", [each.buffers for each in devices]),
        ("callboard_device_streams", [each.streams for each in devices]),
    ):
        yield _group(name, [((each.name,), value) for each, value in zip(devices, values, strict=True)])
    for name, key in (
        ("callboard_device_memory_peak_bytes", "peak"),
        ("callboard_device_memory_fragmentation_ratio", "fragmentation"),
    ):
        yield _group(name, [((each.name,), each.memory[key]) for each in devices if key in each.memory])
    kinds = ("free", "total", "used", "cached", "staged")
    yield _group(
        "callboard_device_memory_bytes",
        [((each.name, kind), each.memory[kind]) for each in devices for kind in kinds if kind in each.memory],
    )
    yield _group(
        "callboard_device_ops_in_flight",
        [((each.name, library), n) for each in devices for library, n in each.in_flight.items()],
    )
    for name, key in (
        ("callboard_plans", "entries"),
        ("callboard_plan_hits_total", "hits"),
        ("callboard_plan_misses_total", "misses"),
        ("callboard_plan_evictions_total", "evictions"),
    ):
        yield _group(
            name, [((each.name, library), plan[key]) for each in devices for library, plan in each.plans.items()]
        )
    residents = [((each.name, name), found) for each in devices for name, found in each.residents.items()]
    ends = [((*label, "completed"), found.completed) for label, found in residents]
    ends += [((*label, "failed"), found.failed) for label, found in residents]
    yield _group("callboard_resident_calls_total", ends)
    yield _group("callboard_resident_calls_in_flight", [(label, found.in_flight) for label, found in residents])
    yield _group("callboard_resident_restarts_total", [(label, found.restarts) for label, found in residents])
    yield _group("callboard_resident_busy_seconds_total", [(label, found.busy) for label, found in residents])


def _ops(devices: list[DeviceFigures]) -> Iterator[Group]:
    ops = [((each.name, tag), op) for each in devices for tag, op in each.ops.items()]
    yield _group("callboard_op_calls_total", [(label, op.submitted) for label, op in ops])
    yield _group("callboard_op_failures_total", [(label, op.failed) for label, op in ops])


def _histograms(counts: Counts) -> Iterator[Group]:
    devices = counts.devices.copy()
    seconds = [
        ((name, called_as(tag)), op) for name, each in devices.items() for tag, op in each.seconds.copy().items()
    ]
    yield _group("callboard_op_seconds", seconds)
    yield _group("callboard_context_recovery_seconds", [((name,), each.recoveries) for name, each in devices.items()])


def _servers() -> Iterator[Group]:
    found = [((name, kind), stats) for name, kind, stats in server_stats()]
    yield _group(
        "callboard_server_requests_total",
        [((*label, end), getattr(stats, end, 0)) for label, stats in found for end in ENDS],
    )
    for name in ("queued", "running"):
        yield _group(f"callboard_server_{name}", [(label, getattr(stats, name, 0)) for label, stats in found])
    for name, attribute in (
        ("callboard_server_queue_seconds", "queue_time"),
        ("callboard_server_total_seconds", "total_time"),
        ("callboard_server_batch_size", "batch_size"),
    ):
        values = [(label, getattr(stats, attribute, None)) for label, stats in found]
        yield _group(name, [(label, value) for label, value in values if value is not None and value.buckets])


def _processes(processes: list[ProcessFigures]) -> Iterator[Group]:
    labels = [(each.role, each.device, str(each.pid)) for each in processes]
    for name, values in (
        ("callboard_process_resident_memory_bytes", [each.rss for each in processes]),
        ("callboard_process_cpu_seconds_total", [each.cpu for each in processes]),
        ("callboard_process_threads", [each.threads for each in processes]),
    ):
        yield _group(name, list(zip(labels, values, strict=True)))
