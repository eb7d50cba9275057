"""``Passage``: one step: every device gets its actions as soon as what they need is there."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.core.reply import Reply
from callboard.device.client.residents.ref import ResidentRef
from callboard.train.pipeline.messages import Finished
from callboard.train.pipeline.plans import MicroBatch
from callboard.train.pipeline.schedules.actions import Action, Kind, Table
from callboard.train.pipeline.worker import Worker

if TYPE_CHECKING:
    from callboard.train.pipeline.crew import Crew

__all__ = ["Passage"]


class Passage:
    """A step on its way.

    A device's calls are made ahead of their execution: as soon as the values that one needs are there, also while the
    device computes. Calls whose results no other device waits for travel together with the next one, if that has its
    values: a message costs as much as the pass of a small stage.

    Args:
        crew: The devices.
        table: Their actions.
        micros: The micro-batches.
        step: Number of the step.
        count: Count its operations.
        metrics: The table has forward passes only, of an evaluation with these, after the step.
    """

    def __init__(
        self,
        crew: "Crew",
        table: Table,
        micros: list[MicroBatch],
        step: int,
        *,
        count: bool = False,
        metrics: bytes | None = None,
    ) -> None:
        self._crew = crew
        self._table = table
        self._micros = micros
        self._step = step
        self._begin = step - (metrics is None), count, metrics
        self._total = sum(one.weight for one in micros)
        self._last = len(crew.placed) - 1
        self._made: dict[Action, asyncio.Future[Reply[Any]]] = {}
        self._sent: list[Reply[Any]] = []  # to all, in the order of the calls
        self._rows = [Row(worker, self._sent) for worker in crew.actors]
        self._used: dict[tuple[int, int], list[Any]] = {}

    async def run(self) -> list[Finished]:
        """Run all forward and backward passes; what each device has computed.

        Raises:
            ContextLost, DeviceStopped: A device was lost.
            Exception: What the model or the loss raised.
        """
        tasks = [asyncio.ensure_future(self._drive(*pair)) for pair in zip(self._rows, self._table, strict=True)]
        try:
            return await asyncio.gather(*tasks)
        except BaseException as error:  # also a cancelled step ends its tasks
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(error, Exception):
                await self._first_to_fail()
            raise
        finally:
            for made in self._made.values():
                if not made.done():
                    made.cancel()

    async def _first_to_fail(self) -> None:
        """Raise what failed first: a call fails after those that it needs, but may be the first that was awaited."""
        ended = await asyncio.gather(*map(_ended, self._sent))
        for error in filter(None, ended):
            raise error

    async def _drive(self, row: "Row", actions: Sequence[Action]) -> Finished:
        row.add("begin", self._begin)
        for action in actions:
            source = self._source(action)
            if source is not None:
                if not self._is_there(source):
                    row.send()  # what there is, before this waits
                await self._arrive(source)
            if action.kind is Kind.FORWARD:
                row.add("forward", self._forward(action.stage, action.micro))
            elif action.kind is Kind.WEIGHT:
                row.add("weights", (action.stage, action.micro))
            else:
                row.add("backward", self._backward(action.kind, action.stage, action.micro))
            if action.kind not in (Kind.FORWARD, Kind.INPUT):
                row.hold(self._used.pop((action.stage, action.micro)))
            if self._is_awaited(action):
                self._of(action).set_result(row.send())
        row.add("finish", ())
        row.send()
        finished: Finished = await row.end()
        return finished

    def _source(self, action: Action) -> Action | None:
        """The action on another stage whose result this one needs."""
        kind, stage, micro = action
        if kind is Kind.FORWARD:
            return Action(kind, stage - 1, micro) if stage else None
        return Action(kind, stage + 1, micro) if kind is not Kind.WEIGHT and stage < self._last else None

    def _is_awaited(self, action: Action) -> bool:
        """Another stage needs its result."""
        kind, stage, _ = action
        return kind is not Kind.WEIGHT and (stage < self._last if kind is Kind.FORWARD else stage > 0)

    def _of(self, action: Action) -> "asyncio.Future[Reply[Any]]":
        if action not in self._made:
            self._made[action] = asyncio.get_running_loop().create_future()
        return self._made[action]

    def _is_there(self, source: Action) -> bool:
        made = self._of(source)
        return made.done() and made.result().done()

    async def _arrive(self, source: Action) -> None:
        """Wait for a result, and note where its values are."""
        kind, stage, micro = source
        result = await (await asyncio.shield(self._of(source)))
        route = self._micros[micro].route
        if kind is Kind.FORWARD:
            route.gave(stage, result.names, result.values)
        else:
            route.passed_back(stage, result)

    def _forward(self, stage: int, micro: int) -> tuple[Any, ...]:
        batch = self._micros[micro]
        row, named = batch.route.take(stage)
        args = [self._crew.beside(one, stage) for one in row]
        by_name = {name: self._crew.beside(one, stage) for name, one in named.items()}
        self._used[stage, micro] = [*args, *by_name.values()]
        last = (batch.targets, batch.rows, batch.weight, self._total) if stage == self._last else None
        return (self._step, stage, micro), args, by_name, last

    def _backward(self, kind: Kind, stage: int, micro: int) -> tuple[Any, ...]:
        of_outputs, of_inputs = (
            [None if one is None else self._crew.beside(one, stage) for one in some]
            for some in self._micros[micro].route.gradients(stage)
        )
        self._used[stage, micro] += [*of_outputs, *of_inputs]
        return kind is Kind.INPUT, stage, micro, of_outputs, of_inputs


class Row:
    """The calls of one device.

    Args:
        worker: Its actor.
        sent: The replies of all devices' calls, to which it adds its own.
    """

    def __init__(self, worker: ResidentRef[Worker], sent: list[Reply[Any]]) -> None:
        self._worker = worker
        self._sent = sent
        self._calls: list[tuple[str, tuple[Any, ...]]] = []  # that were not sent
        self._values: list[Any] = []  # that they use
        self._replies: list[Reply[Any]] = []
        self._held: deque[tuple[Reply[Any], list[Any]]] = deque()

    def add(self, name: str, arguments: tuple[Any, ...]) -> None:
        """A call of this method is to be made."""
        self._calls.append((name, arguments))

    def hold(self, values: list[Any]) -> None:
        """Keep values until the last call that was added has been made."""
        self._values += values

    def send(self) -> Reply[Any]:
        """Make the calls; the reply of the last one."""
        if self._calls:
            reply = self._worker.call(Worker.run, self._calls)
            self._held.append((reply, self._values))
            self._replies.append(reply)
            self._sent.append(reply)
            self._calls, self._values = [], []
            while self._held and self._held[0][0].done():
                self._held.popleft()
        return self._replies[-1]

    async def end(self) -> Any:
        """What the last call gave, once all have been made."""
        result: Any = None
        for reply in self._replies:
            result = await reply
        return result


async def _ended(call: Reply[Any]) -> Exception | None:
    """What a call failed with, when it has ended."""
    try:
        await call
    except Exception as error:  # of a device, the model or the loss: the caller raises it
        return error
    return None
