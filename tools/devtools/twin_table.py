"""What the generator of ``cb.sync`` cannot derive: where the classes are, what is left out, and which bodies differ."""

from dataclasses import dataclass

__all__ = ["BODIES", "DOCS", "FUNCTIONS", "LEFT_OUT", "REFUSED", "RESULTS", "TWINS", "Twin"]


@dataclass(frozen=True)
class Twin:
    """A class of :mod:`callboard.sync`.

    Attributes:
        name: Name of both classes.
        source: Module of the asynchronous one.
        base: Module of the base with what is written by hand; it is called ``<name>Base``.
        inner: What holds the asynchronous object; empty if methods are copied instead of derived.
        parameters: Of a generic class.
        slots: It has no attributes beside those of its base.
        constructs: ``__init__`` takes the arguments of the asynchronous class, and passes an object of that on.
    """

    name: str
    source: str
    base: str
    inner: str
    parameters: str = ""
    slots: bool = False
    constructs: bool = False


TWINS = [
    Twin("PinnedBufferPool", "callboard.device.client.memory.pinned", "callboard._blocking_device", "self._pool"),
    Twin("Stream", "callboard.device.client.residents.stream", "callboard._blocking_residents", "", "R_co", slots=True),
    Twin(
        "ResidentRef",
        "callboard.device.client.residents.ref",
        "callboard._blocking_residents",
        "self._ref",
        "A_co",
        slots=True,
    ),
    Twin("Device", "callboard.device.client.handle", "callboard._blocking_device", "self._device"),
    Twin("System", "callboard.system", "callboard._blocking_systems", "system"),
    Twin("Cluster", "callboard.clusters", "callboard._blocking_systems", "self._open"),
    Twin(
        "Quarantine",
        "callboard.patterns.quarantine.guard",
        "callboard._blocking_quarantine",
        "self._quarantine",
        "T",
        constructs=True,
    ),
]

ACTORS = "actors run on a loop; cb.sync has devices, and resident actors on them"
ENDS = "a blocking end is called close"
OF_SERVERS = "servers call it for their requests, and run on a loop"

LEFT_OUT = {
    "Cluster.close_devices": "close does it",
    "Cluster.locate": "regions of entities belong to an event loop",
    "Device.watch_generation": "its values are awaited; wait_generation waits for one",
    "Quarantine.begin": OF_SERVERS,
    "Quarantine.blame": OF_SERVERS,
    "Quarantine.end": OF_SERVERS,
    "Quarantine.has_records": OF_SERVERS,
    "Quarantine.lost": OF_SERVERS,
    "Quarantine.pause": OF_SERVERS,
    "Quarantine.refuse_held": OF_SERVERS,
    "Quarantine.resume": OF_SERVERS,
    "Quarantine.run_as": OF_SERVERS,
    "ResidentRef.stop_and_wait": "stop waits",
    "Stream.aclose": ENDS,
    "System.actor_of": ACTORS,
    "System.actors": ACTORS,
    "System.loop_lag": ACTORS,
    "System.on_termination": ACTORS,
    "System.spawn": ACTORS,
    "System.start": "it starts with its first device",
    "System.stop": ENDS,
    "System.terminated": ACTORS,
}
"""Public names of the asynchronous classes that the blocking ones do not have: why."""

ON_LOOP = "self._background.call(lambda: {call})"
REPLY = "self._device._patiently(lambda: {call}).result()"

BODIES = {
    "Cluster.device": "Device(self._background, self._opened({call}), self._close)",
    "Device.actor_of": "ResidentRef._made(self, self._start_resident(props, name, wait, own_process, standby))",
    "Device.events": "self._each(lambda: {call})",
    "Device.per_generation": "PerGeneration(self, make)",
    "Device.pinned_pool": "PinnedBufferPool(self._background, {call})",
    "Device.trace": "self._removing(self._background.run({call}))",
    "Device.watch_memory": "self._removing(self._background.run({call}))",
    "PinnedBufferPool.stats": ON_LOOP,
    "PinnedBufferPool.trim": ON_LOOP,
    "Quarantine.pardon": ON_LOOP,
    "Quarantine.stats": ON_LOOP,
    "ResidentRef.ask": REPLY,
    "ResidentRef.call": REPLY,
    "ResidentRef.stream": "Stream(*self._streamed(lambda: {call}))",
    "ResidentRef.tell": "self._device._patiently(lambda: {call})",
    "ResidentRef.with_timeout": "type(self)(self._device, {call})",
    "System.device": "self._opened(Device, lambda system: {call})",
}
"""Bodies of methods that neither run a coroutine on the loop and wait, nor ask the object on this thread."""

RESULTS = [("Undeclared", "Any"), ("GpuRef[Any]", "GpuRef[Blocking]"), ("R", "R")]
"""What a method of a resident actor returns or yields, and what its blocking call gives: an overload for each."""

REFUSED = {
    "Device": "a device of cb.sync is for programs without asyncio: use `with`, or in asyncio `async with "
    "cb.device(...)`",
    "System": "cb.sync.System is for programs without asyncio: use `with`, or in asyncio `async with cb.System(...)`",
}
"""What ``async with`` says of those whose asynchronous classes have the same call."""

FUNCTIONS = {
    "cluster": ("callboard.clusters", "system", "Cluster(async_cluster({arguments}))"),
    "device": ("callboard.system", "", "_default.device({arguments})"),
}
"""By name: the module of the asynchronous function, a parameter that is left out, and the body."""

DOCS = {
    "Device.actor_of": """\
Start your actor in the device's context host.

``emb = gpu.actor_of(cb.Props(Embedder), name="embedder")``, then ``emb.call(Embedder.embed, ["hello"])`` waits
for the answer and gives it. With ``wait=True`` this returns when the actor is ready. Arguments and errors as
:meth:`callboard.Device.actor_of`.""",
    "Device.events": "``Lost``, ``Recovered`` and ``Stopped`` from now on, each waited for; ends after ``Stopped``.",
    "Device.per_generation": """\
``make(device)``, made again on first use in each generation.

``weights = gpu.per_generation(lambda d: d.put(w))``, then ``weights()`` wherever they are needed.""",
    "Device.room": "Wait until ``n`` more ops can be called without waiting.",
    "Device.trace": """\
Have ``hook`` called with a record of every op that gets its completion from now on.

It is called on the thread of the event loop, in batches, and must not wait there: put the records into a list
or a queue. As :meth:`callboard.Device.trace`, it belongs to the current context.

Returns:
    A function that removes it.""",
    "Device.watch_memory": """\
Have ``hook`` called with the device's memory: now, and when our use of it has changed.

``hook`` is called on the thread of the event loop and must not wait there. Otherwise like
:meth:`callboard.Device.watch_memory`.

Args:
    hook, step: See there.

Returns:
    A function that removes it.""",
    "ResidentRef.ask": """\
Ask with a message and wait for the answer; the method marked ``@Message.handles`` gives it.

Raises:
    UnhandledMessage: No method handles it.
    Exception: As for :meth:`call`.""",
    "ResidentRef.call": """\
Call a method and wait for its result: ``emb.call(Embedder.embed, ["hello"])``.

Arguments and errors as :meth:`callboard.ResidentRef.call`, those of its reply included; if that raises
``MailboxFull``, this waits for room.""",
    "ResidentRef.stream": """\
Take the items that a method yields: ``for token in model.stream(Model.generate, prompt): ...``.

Arguments and errors as :meth:`callboard.ResidentRef.stream`; if that raises ``MailboxFull``, this waits for
room.""",
    "ResidentRef.in_flight": "Calls without an answer, of all threads.",
    "ResidentRef.tell": """\
Send a message, waiting only for room; a failure becomes a dead letter. Raises as :meth:`ask`.""",
    "System.device": """\
The device, opened on first use; arguments and errors as :meth:`callboard.System.device`.""",
    "cluster": """\
Blocking devices on the nodes of a Ray cluster; arguments and errors as :func:`callboard.cluster`.""",
    "device": """\
A blocking device: ``with cb.sync.device("auto") as gpu``, or without ``with`` in a notebook.

Arguments and errors as :meth:`callboard.System.device`. The same device gives the same handle while it is open.""",
}
"""Docstrings of what behaves differently; all others are those of the asynchronous class, without ``await``."""
