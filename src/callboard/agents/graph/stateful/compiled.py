"""``CompiledStateGraph``: runs a state graph: invoke, stream, look at its states, change them."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from callboard.actors.clock import Clock
from callboard.actors.loops.end import END
from callboard.agents.graph.checkpoints.store import Checkpoints, Saved
from callboard.agents.graph.errors import EmptyInput, GraphError, GraphInterrupt, InvalidUpdate
from callboard.agents.graph.picture import Arrow, mermaid
from callboard.agents.graph.stateful.context import CURRENT, Answers
from callboard.agents.graph.stateful.engine import Options, Run
from callboard.agents.graph.stateful.frames import Frame, Outcome, Task, load_frame, outcomes_of
from callboard.agents.graph.stateful.snapshots import config_of, snapshot_of
from callboard.agents.graph.stateful.spec import Spec
from callboard.agents.graph.stateful.steps import advance, enter
from callboard.agents.graph.stateful.stream import Mode, Stream, parts
from callboard.agents.graph.stateful.tasks import follow, read_update
from callboard.agents.graph.stateful.types import START, Command, StateSnapshot

__all__ = ["CompiledStateGraph"]

Config = Mapping[str, Any]
Durability = Literal["sync", "async", "exit"]


class CompiledStateGraph:
    """A state graph that runs; made by :meth:`StateGraph.compile`.

    ``config={"configurable": {"thread_id": "1"}}`` names the thread of a run: a sequence of states that the
    checkpointer keeps. ``config={"recursion_limit": 50}`` bounds its steps, ``{"max_concurrency": 4}`` the nodes that
    run at once.

    What a lost device costs: with ``compile(device=gpu)``, arrays of the state are kept in the checkpoints; a run that
    fails with ``ContextLost`` continues with ``invoke(None, config)`` at the nodes that had not finished.
    """

    def __init__(
        self,
        spec: Spec,
        store: Checkpoints | None,
        before: tuple[str, ...],
        after: tuple[str, ...],
        device: Any,
        name: str,
        clock: Clock,
    ) -> None:
        self._spec, self.checkpointer, self._device, self.name = spec, store, device, name
        self._before, self._after, self._clock = before, after, clock
        self._busy: set[tuple[str, str]] = set()

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def ainvoke(
        self,
        input: Any,
        config: Config | None = None,
        *,
        context: Any = None,
        interrupt_before: Sequence[str] | Literal["*"] | None = None,
        interrupt_after: Sequence[str] | Literal["*"] | None = None,
        durability: Durability = "sync",
    ) -> Any:
        """Run the graph and return the state at its end.

        Args:
            input: An update of the state, with which the run begins; None to continue a run that was interrupted or has
                failed; a :class:`Command` to answer an interrupt.
            config: See the class.
            context: For nodes that take ``runtime``.
            interrupt_before, interrupt_after: In place of those of ``compile``.
            durability: ``"sync"`` keeps each step before the next one begins, ``"async"`` while it runs, ``"exit"``
                only the last one.

        Returns:
            The state; with the key ``"__interrupt__"``, a list of :class:`Interrupt`, if nodes wait for answers.

        Raises:
            GraphRecursionError: More steps than ``recursion_limit``.
            EmptyInput: Nothing to continue.
            InvalidUpdate: Two nodes of a step wrote a key without a reducer, or a node returned no update.
            Exception: Raised by a node; a note names it. Nodes beside it are cancelled. With a checkpointer, ``invoke``
                with None runs those again that had not finished.
        """
        options = self._options(config, context, interrupt_before, interrupt_after, durability)
        frame, waits = await self._run(input, options, Stream(()))
        return self._result(frame, waits)

    def invoke(self, input: Any, config: Config | None = None, **options: Any) -> Any:
        """:meth:`ainvoke` for code without an event loop.

        Raises:
            GraphError: There is one on this thread.
        """
        return _blocking(self._invoke(input, config, options))

    async def _invoke(self, given: Any, config: Config | None, options: dict[str, Any]) -> Any:
        made = self._options(config, **_known(options))
        made.inline = True
        frame, waits = await self._run(given, made, Stream(()))
        return self._result(frame, waits)

    async def astream(
        self,
        input: Any,
        config: Config | None = None,
        *,
        stream_mode: Mode | Sequence[Mode] = "updates",
        **options: Any,
    ) -> AsyncGenerator[Any, None]:
        """Run the graph and give what happens, as it happens.

        Args:
            input, config, options: As for :meth:`ainvoke`.
            stream_mode: ``"updates"``: of each node that has ended, its name and update. ``"values"``: the state after
                each step. ``"custom"``: what nodes write with ``get_stream_writer()`` or their parameter ``writer``.
                Of several modes, pairs of mode and item. A caller that leaves cancels the run.
        """
        stream = Stream(stream_mode)
        made = self._options(config, **_known(options))
        async with aclosing(parts(stream, self._run(input, made, stream))) as items:
            async for item in items:
                yield item

    def stream(
        self,
        input: Any,
        config: Config | None = None,
        *,
        stream_mode: Mode | Sequence[Mode] = "updates",
        **options: Any,
    ) -> Iterator[Any]:
        """:meth:`astream` for code without an event loop."""
        _refuse_loop()
        with asyncio.Runner() as runner:
            items = self.astream(input, config, stream_mode=stream_mode, **options)
            try:
                while True:
                    try:
                        yield runner.run(anext(items))
                    except StopAsyncIteration:
                        return
            finally:
                runner.run(items.aclose())

    def _options(
        self,
        config: Config | None,
        context: Any = None,
        interrupt_before: Sequence[str] | None = None,
        interrupt_after: Sequence[str] | None = None,
        durability: Durability = "sync",
    ) -> Options:
        given = dict(config or {})
        place = given.get("configurable") or {}
        limit = given.get("recursion_limit", 10_007)
        if limit < 1:
            raise ValueError(f"recursion_limit is {limit}; it must be at least 1")
        if durability not in ("sync", "async", "exit"):
            raise ValueError(f"durability is {durability!r}; it must be 'sync', 'async' or 'exit'")
        thread = place.get("thread_id")
        if self.checkpointer is not None and thread is None:
            raise GraphError('this graph has a checkpointer: pass config={"configurable": {"thread_id": "1"}}')
        return Options(
            given,
            "" if thread is None else str(thread),
            place.get("checkpoint_ns", ""),
            limit,
            self._before if interrupt_before is None else tuple(interrupt_before),
            self._after if interrupt_after is None else tuple(interrupt_after),
            durability,
            context,
            given.get("max_concurrency"),
            False,
            (given.get("metadata") or {}).get("run_id") or given.get("run_id"),
        )

    async def _run(self, given: Any, options: Options, stream: Stream) -> tuple[Frame, tuple[Any, ...]]:
        store, place = self.checkpointer, (options.thread, options.ns)
        if store is not None:
            if place in self._busy:
                raise GraphError(f"a run of thread {options.thread!r} is under way; wait for its end")
            self._busy.add(place)
        try:
            saved = await self._load(store, options)
            return await self._go(given, options, stream, store, saved, Answers())
        finally:
            self._busy.discard(place)

    async def _load(self, store: Checkpoints | None, options: Options) -> Saved | None:
        if store is None:
            return None
        id_ = (options.config.get("configurable") or {}).get("checkpoint_id")
        arguments = (options.thread, options.ns, id_)
        saved = store.get(*arguments) if store.in_memory else await asyncio.to_thread(store.get, *arguments)
        if saved is None and id_ is not None:
            raise EmptyInput(f"thread {options.thread!r} has no checkpoint {id_!r}")
        return saved

    async def _go(
        self,
        given: Any,
        options: Options,
        stream: Stream,
        store: Checkpoints | None,
        saved: Saved | None,
        answers: Answers,
    ) -> tuple[Frame, tuple[Any, ...]]:
        spec = self._spec
        before = Frame() if saved is None else load_frame(saved, self._device)[0]
        resuming = given is None or isinstance(given, Command)
        outcomes: dict[str, Outcome] = {}
        stream.shape = self._shown
        if resuming and saved is None:
            raise EmptyInput("there is nothing to continue: pass the input of the run, and a thread that has a state")
        if resuming and saved is not None:
            frame, outcomes, answers = self._resume(given, options, saved, before, store, answers)
            if frame is not before:
                resuming = False
            stream.emit("values", frame.values)
        else:
            writes = self._input(given)
            entry = Outcome()
            if START in spec.branches:
                state = before.values if saved is not None else _starting(spec)
                entry.writes = writes
                await follow(spec, START, given, state, entry, options.config)
            frame = enter(spec, before, writes, entry.targets)
            if writes:
                stream.emit("values", frame.values)
        run = Run(spec, store, options, stream.emit, answers, outcomes)
        return await run.go(frame, resuming=resuming), run.interrupts

    def _resume(
        self,
        given: "Command[Any] | None",
        options: Options,
        saved: Saved,
        before: Frame,
        store: Checkpoints | None,
        answers: Answers,
    ) -> tuple[Frame, dict[str, Outcome], Answers]:
        outcomes = outcomes_of(saved, self._device)
        frame = before
        chosen = (options.config.get("configurable") or {}).get("checkpoint_id")
        latest = store.get(options.thread, options.ns) if store is not None and chosen else saved
        if chosen and latest is not None and (latest.id != saved.id or given is None) and not options.ns:
            frame = before.next("fork", before.step)  # its tasks run again, and ask again
            frame.tasks, frame.ran = before.tasks, before.ran
            answered = isinstance(given, Command) and given.resume is not None
            outcomes = {key: each for key, each in outcomes.items() if answered and each.interrupts}
            for each in outcomes.values():
                each.resumed = []
        if given is None:
            return frame, outcomes, answers
        if given.resume is not None:
            waits = [each.id for outcome in outcomes.values() for each in outcome.interrupts]
            by_id = isinstance(given.resume, dict) and bool(given.resume) and all(map(_is_id, given.resume))
            if not waits:
                raise EmptyInput("no interrupt waits for an answer in this thread")
            if not by_id and len(waits) > 1:
                raise GraphError(f"{len(waits)} interrupts wait: pass Command(resume={{id: answer}}); ids: {waits}")
            if frame is not before:  # the ids of a fork are others; the answer goes to its first interrupt
                answers = Answers(next(iter(given.resume.values())) if by_id else given.resume)
            else:
                answers = Answers(None, given.resume) if by_id else Answers(None, {waits[0]: given.resume})
        if given.update is not None or given.goto:
            changed, _ = read_update(self._spec, "Command", given)
            frame = advance(self._spec, frame, [(Task(START), changed)], "update")
            frame.tasks = frame.tasks or before.tasks
            outcomes = outcomes if not given.goto else {}
        elif given.resume is None:
            raise EmptyInput("the Command is empty: pass resume, update or goto")
        return frame, outcomes, answers

    def _input(self, given: Any) -> list[tuple[str, Any]]:
        outcome, _ = read_update(self._spec, START, {} if given is None else given)
        keys = self._spec.inputs.channels
        for key, _ in outcome.writes:
            if key not in keys:
                raise InvalidUpdate(f"the input has the key {key!r}, and the graph takes {', '.join(map(repr, keys))}")
        return outcome.writes

    def _shown(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if "__interrupt__" in values:
            return dict(values)
        return {key: values[key] for key in self._spec.outputs.keys if key in values}

    def _result(self, frame: Frame, waits: tuple[Any, ...]) -> dict[str, Any]:
        shown = self._shown(frame.values)
        return {**shown, "__interrupt__": list(waits)} if waits else shown

    # -- as a node -----------------------------------------------------------------------------------------------------

    def as_node(self) -> Any:
        """A function for a node of another graph; with that graph's checkpointer, unless it has one of its own."""

        async def call(state: Any) -> Any:
            task = CURRENT.get()
            keys = self._spec.inputs.channels
            given = {key: item for key, item in state.items() if key in keys} if isinstance(state, Mapping) else state
            place = {"thread_id": task.thread, "checkpoint_ns": task.ns}
            options = Options(
                {**task.config, "configurable": {**(task.config.get("configurable") or {}), **place}},
                task.thread,
                task.ns,
                task.config.get("recursion_limit", 10_007),
                context=task.context,
            )
            options.config["configurable"].pop("checkpoint_id", None)
            store = self.checkpointer or task.store
            saved = await self._load(store, options)
            stream = Stream(("custom",), lambda mode, item: task.write(item))
            if saved is not None:
                given = None
            frame, waits = await self._nested(given, options, stream, store, saved, task.answers)
            if waits:
                raise GraphInterrupt(waits)
            return self._shown(frame.values)

        return call

    async def _nested(
        self, given: Any, options: Options, stream: Stream, store: Any, saved: Saved | None, answers: Answers
    ) -> tuple[Frame, tuple[Any, ...]]:
        return await self._go(given, options, stream, store, saved, answers)

    # -- states --------------------------------------------------------------------------------------------------------

    def get_state(self, config: Config) -> StateSnapshot:
        """The state of a thread: the latest, or that of the ``checkpoint_id`` in the config."""
        options, store = self._options(config), self._store()
        id_ = config["configurable"].get("checkpoint_id")
        saved = store.get(options.thread, options.ns, id_)
        if saved is None:
            return StateSnapshot({}, (), dict(config), None, None, None, (), ())
        return snapshot_of(saved, self._device, self._spec, latest=id_ is None)

    async def aget_state(self, config: Config) -> StateSnapshot:
        """:meth:`get_state`, without blocking the event loop."""
        return await asyncio.to_thread(self.get_state, config)

    def get_state_history(
        self,
        config: Config,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[StateSnapshot]:
        """The states of a thread, the latest first.

        Args:
            config: Names the thread.
            filter: Of these values in their metadata only.
            before: Of checkpoints before this one only.
            limit: States at most.
        """
        options, store = self._options(config), self._store()
        last = None if before is None else before["configurable"].get("checkpoint_id")
        for thread, ns, id_, _ in store.entries(options.thread, options.ns, last):
            if limit is not None and limit <= 0:
                return
            saved = store.get(thread, ns, id_)
            if saved is None:
                continue
            found = snapshot_of(saved, self._device, self._spec, latest=False)
            if filter and any((found.metadata or {}).get(key) != item for key, item in filter.items()):
                continue
            limit = None if limit is None else limit - 1
            yield found

    async def aget_state_history(self, config: Config, **options: Any) -> AsyncGenerator[StateSnapshot, None]:
        """:meth:`get_state_history`, without blocking the event loop."""
        for each in await asyncio.to_thread(lambda: [*self.get_state_history(config, **options)]):
            yield each

    async def aupdate_state(self, config: Config, values: Any, as_node: str | None = None) -> dict[str, Any]:
        """Change the state of a thread, as if a node had returned ``values``; returns the place of the new state.

        Args:
            config: Names the thread, or one of its checkpoints.
            values: The update.
            as_node: The node; its edges decide what runs next. None: the one that ran last. ``END``: nothing runs next.

        Raises:
            InvalidUpdate: Several nodes ran last, and none is named; or it is no update.
        """
        options, store, spec = self._options(config), self._store(), self._spec
        saved = await self._load(store, options)
        before = Frame() if saved is None else load_frame(saved, self._device)[0]
        if as_node is None:
            ran = sorted(set(before.ran)) or [START]
            if len(ran) > 1:
                raise InvalidUpdate(f"nodes {', '.join(map(repr, ran))} ran last: say which it is, as_node={ran[0]!r}")
            (as_node,) = ran
        if as_node not in spec.nodes and as_node not in (START, END):
            raise GraphError(f"as_node={as_node!r}: there is no such node")
        outcome, _ = read_update(spec, as_node, values)
        if as_node in spec.branches:
            await follow(spec, as_node, values, before.values or _starting(spec), outcome, options.config)
        if as_node == START or not before.id:
            start = [(as_node, outcome.targets)] if as_node == START else []
            frame = enter(spec, before, outcome.writes, start[0][1] if start else ())
            if as_node != START:
                frame = advance(spec, frame, [(Task(as_node), Outcome(targets=outcome.targets))], "update")
                frame.changed(frame.values)
            frame.source = "update"
        else:
            frame = advance(spec, before, [(Task(as_node), outcome)], "update")
            if as_node == END:
                frame.tasks = []
        await Run(spec, store, options, lambda mode, item: None, Answers(), {})._save(frame)
        return config_of(options.thread, options.ns, frame.id)

    def update_state(self, config: Config, values: Any, as_node: str | None = None) -> dict[str, Any]:
        """:meth:`aupdate_state` for code without an event loop."""
        updated: dict[str, Any] = _blocking(self.aupdate_state(config, values, as_node))
        return updated

    def _store(self) -> Checkpoints:
        if self.checkpointer is None:
            raise GraphError("this graph keeps no states: graph.compile(checkpointer=cb.Checkpoints())")
        return self.checkpointer

    def draw_mermaid(self) -> str:
        """The graph as a Mermaid flow chart; dotted edges are taken by condition."""
        spec = self._spec
        arrows: list[Arrow] = [(start, end, None) for start, ends in spec.edges.items() for end in ends]
        arrows += [(start, end, None) for starts, end in spec.joins for start in starts]
        for start, branches in spec.branches.items():
            for branch in branches:
                ends = branch.ends if branch.ends is not None else dict.fromkeys([*spec.nodes, END], "")
                for label, end in branch.ends.items() if branch.ends is not None else ((e, e) for e in ends):
                    arrows.append((start, end, "" if label == end else str(label)))
        arrows += [(name, end, "") for name, node in spec.nodes.items() for end in node.ends]
        return mermaid(list(spec.nodes), arrows, [START, END])

    def __repr__(self) -> str:
        return f"<CompiledStateGraph {self.name!r} of {len(self._spec.nodes)} nodes>"


def _starting(spec: Spec) -> dict[str, Any]:
    return {name: channel.start() for name, channel in spec.channels.items() if channel.start}


def _is_id(key: Any) -> bool:
    return isinstance(key, str) and len(key) == 32 and all(c in "0123456789abcdef" for c in key)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    known = ("context", "interrupt_before", "interrupt_after", "durability")
    for name in options:
        if name not in known:
            raise TypeError(f"there is no option {name!r}; the options are {', '.join(known)}")
    return options


def _blocking(coroutine: Any) -> Any:
    try:
        _refuse_loop()
    except GraphError:
        coroutine.close()
        raise
    return asyncio.run(coroutine)


def _refuse_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise GraphError("an event loop runs on this thread: use await graph.ainvoke(...), astream or aupdate_state")
