"""``Run``: one run of a state graph, step by step."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from callboard.agents.graph.checkpoints.store import Checkpoints
from callboard.agents.graph.errors import GraphRecursionError
from callboard.agents.graph.stateful.context import Answers, TaskContext
from callboard.agents.graph.stateful.frames import Frame, Outcome, Task, on_host, save_frame, save_outcome
from callboard.agents.graph.stateful.spec import Spec
from callboard.agents.graph.stateful.steps import advance, with_finished
from callboard.agents.graph.stateful.tasks import run_task
from callboard.agents.graph.stateful.types import Interrupt, Send

__all__ = ["Options", "Run"]

Emit = Callable[[str, Any], None]


@dataclass(slots=True)
class Options:
    """How a run goes: see :meth:`CompiledStateGraph.ainvoke`."""

    config: dict[str, Any]
    thread: str = ""
    ns: str = ""
    limit: int = 10_007
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    durability: str = "sync"
    context: Any = None
    concurrency: int | None = None
    inline: bool = False
    run_id: str | None = None


class Run:
    """A run from a frame to its end, to an interrupt or to an error.

    Args:
        spec: The graph.
        store: Its checkpoints, None without.
        options: How it goes.
        emit: Called with a mode of the stream and an item.
        answers: Answers to interrupts.
        outcomes: What tasks of the frame have done already, by id.
    """

    def __init__(
        self,
        spec: Spec,
        store: Checkpoints | None,
        options: Options,
        emit: Emit,
        answers: Answers,
        outcomes: dict[str, Outcome],
    ) -> None:
        self._spec, self._store, self._options, self._emit = spec, store, options, emit
        self._answers, self._outcomes = answers, outcomes
        self._kept: asyncio.Future[None] | None = None
        self._unkept: Frame | None = None
        self._parent: str | None = None
        self._gate = None if options.concurrency is None else asyncio.Semaphore(options.concurrency)
        self.interrupts: tuple[Interrupt, ...] = ()

    async def go(self, frame: Frame, *, resuming: bool) -> Frame:
        """Run until the end; returns the last frame."""
        options, spec = self._options, self._spec
        try:
            if not resuming:
                await self._keep(frame)
            steps, limit = 0, options.limit + 2 * resuming  # as langgraph counts: a resumed run has two more
            while True:
                steps += 1
                if steps > limit:
                    names = ", ".join(sorted({task.name for task in frame.tasks})) or "none"
                    raise GraphRecursionError(
                        f"{limit} steps have not led to the end; next: {names}. If the graph is to go on, pass "
                        'a larger config={"recursion_limit": ...}'
                    )
                if not frame.tasks:
                    return frame
                if options.before and not (resuming and steps == 1) and _stops(options.before, _names(frame.tasks)):
                    self._emit("updates", {"__interrupt__": ()})
                    return frame
                done = await self._step(frame)
                if self.interrupts:
                    return self._interrupted(frame, done)
                frame = advance(spec, frame, done)
                self._outcomes = {}
                await self._keep(frame)
                if any(outcome.writes for _, outcome in done):
                    self._emit("values", frame.values)
                if options.after and frame.tasks and _stops(options.after, frame.ran):
                    self._emit("updates", {"__interrupt__": ()})
                    return frame
        finally:
            await self._flush()

    # -- a step --------------------------------------------------------------------------------------------------------

    async def _step(self, frame: Frame) -> list[tuple[Task, Outcome]]:
        tasks = frame.tasks
        if len(tasks) == 1 and not self._outcomes:
            outcomes = [await self._noted(frame, tasks[0], alone=True)]
            if not outcomes[0].interrupts:
                return [(tasks[0], outcomes[0])]
        else:
            outcomes = await self._together(frame)
        waits = [each for outcome in outcomes for each in outcome.interrupts]
        if waits:
            self.interrupts = tuple(waits)
            self._emit("updates", {"__interrupt__": self.interrupts})
        return list(zip(tasks, outcomes, strict=True))

    def _interrupted(self, frame: Frame, done: list[tuple[Task, Outcome]]) -> Frame:
        values = with_finished(self._spec, frame, done)
        if any(outcome.writes for _, outcome in done):
            self._emit("values", values)
        self._emit("values", {"__interrupt__": self.interrupts})
        return replace(frame, values=values)

    async def _together(self, frame: Frame) -> list[Outcome]:
        known: list[Outcome | None] = []
        for task in frame.tasks:
            earlier = self._outcomes.get(task.id)
            finished = earlier if earlier and not earlier.interrupts and earlier.error is None else None
            known.append(finished)
            if finished is not None:
                update = dict(finished.writes) or None
                self._emit("updates", {task.name: update, "__metadata__": {"cached": True}})
        create = asyncio.get_running_loop().create_task
        running = {
            n: create(self._noted(frame, task, alone=len(frame.tasks) == 1))
            for n, task in enumerate(frame.tasks)
            if known[n] is None
        }
        try:
            if running:
                await asyncio.wait(running.values(), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            left = [each for each in running.values() if not each.done()]
            for each in left:
                each.cancel()
            if left:
                await asyncio.wait(left)
        failed = [each for each in running.values() if not each.cancelled() and each.exception() is not None]
        if failed:
            failed[0].result()
        return [outcome or running[n].result() for n, outcome in enumerate(known)]

    async def _noted(self, frame: Frame, task: Task, *, alone: bool) -> Outcome:
        """Run a task, and keep what it has done; of one that is alone in its step, the next frame has it."""
        options, earlier = self._options, self._outcomes.get(task.id)
        context = TaskContext(
            task.id,
            frame.id,
            options.config,
            list(earlier.resumed) if earlier else [],
            self._answers,
            self._write,
            self._store,
            options.thread,
            options.ns,
            options.context,
        )
        try:
            if self._gate is not None:
                async with self._gate:
                    outcome, shown = await run_task(self._spec, task, frame.values, context, inline=False)
            else:
                inline = options.inline and alone
                outcome, shown = await run_task(self._spec, task, frame.values, context, inline=inline)
        except Exception as e:  # of a node: kept, and raised again
            e.add_note(f"in node {task.name!r}, step {frame.step + 1}")
            if self._store is not None:
                error = Outcome(resumed=context.resumed, error=f"{type(e).__name__}: {e}")
                await self._keep_outcome(frame, task, error)
            raise
        if not outcome.interrupts:
            self._emit("updates", {task.name: shown})
        if self._store is not None and (outcome.interrupts or not alone):
            await self._keep_outcome(frame, task, outcome)
        return outcome

    def _write(self, value: Any) -> None:
        self._emit("custom", value)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    async def _keep(self, frame: Frame) -> None:
        if self._store is None:
            return
        if self._options.durability == "exit":
            if self._unkept is None:
                self._parent = frame.parent
            self._unkept = frame
            return
        await self._save(frame)

    async def _save(self, frame: Frame) -> None:
        store, options = self._store, self._options
        assert store is not None
        try:
            if store.in_memory:
                save_frame(store, options.thread, options.ns, frame, options.run_id)
                return
            await self._off_loop(save_frame, options.thread, options.ns, frame, options.run_id)
        except TypeError:  # perhaps of an array of a device, whose contents have to be read
            tasks = [Task(task.name, task.number, await on_host(task.arg)) for task in frame.tasks]
            changed = {key: await on_host(value) for key, value in frame.values.items()}
            host = Frame(**{**_fields(frame), "values": changed, "tasks": tasks})
            await self._off_loop(save_frame, options.thread, options.ns, host, options.run_id)

    async def _off_loop(self, function: Callable[..., None], *args: Any) -> None:
        store = self._store
        assert store is not None
        if store.in_memory:
            function(store, *args)
            return
        if self._kept is not None:
            kept, self._kept = self._kept, None
            await kept
        future = asyncio.ensure_future(asyncio.to_thread(function, store, *args))
        if self._options.durability == "async":
            self._kept = future
        else:
            await asyncio.shield(future)

    async def _keep_outcome(self, frame: Frame, task: Task, outcome: Outcome) -> None:
        await self._save_unkept()  # an interrupt or an error needs the frame that it belongs to
        options = self._options
        try:
            await self._off_loop(save_outcome, options.thread, options.ns, frame, task, outcome)
        except TypeError:
            writes = [(key, await on_host(value)) for key, value in outcome.writes]
            targets: list[str | Send] = [await on_host(target) for target in outcome.targets]
            host = Outcome(writes, targets, outcome.interrupts, outcome.resumed, outcome.error)
            await self._off_loop(save_outcome, options.thread, options.ns, frame, task, host)

    async def _save_unkept(self) -> None:
        if self._unkept is not None:
            unkept, self._unkept = self._unkept, None
            unkept.parent, unkept.versions = self._parent, dict.fromkeys(unkept.values, unkept.id)
            await self._save(unkept)

    async def _flush(self) -> None:
        await self._save_unkept()
        if self._kept is not None:
            kept, self._kept = self._kept, None
            await kept


def _names(tasks: list[Task]) -> list[str]:
    return [task.name for task in tasks]


def _stops(names: tuple[str, ...], ran: list[str]) -> bool:
    return "*" in names or any(name in names for name in ran)


def _fields(frame: Frame) -> dict[str, Any]:
    return {name: getattr(frame, name) for name in Frame.__dataclass_fields__}
