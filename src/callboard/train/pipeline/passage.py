"""``Passage``: one step: every device gets its actions as soon as what they need is there."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from callboard.core.reply import Reply
from callboard.device.client.residents.ref import ResidentRef
from callboard.train.pipeline.messages import Outputs
from callboard.train.pipeline.plans import MicroBatch
from callboard.train.pipeline.schedules.actions import Action, Kind, Table
from callboard.train.pipeline.values import Value
from callboard.train.pipeline.worker import Worker

if TYPE_CHECKING:
    from callboard.train.pipeline.crew import Crew

__all__ = ["Passage"]


class Passage:
    """A step on its way.

    A device's calls are made ahead of their execution: as soon as the values that one needs are there, also while the
    device computes.

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
        self._split = any(action.kind is Kind.INPUT for row in table for action in row)
        self._made: dict[Action, asyncio.Future[Reply[Any]]] = {}
        self._held: list[deque[tuple[Reply[Any], list[Any]]]] = [deque() for _ in table]
        self._used: dict[tuple[int, int], list[Any]] = {}

    async def run(self) -> None:
        """Run all forward and backward passes.

        Raises:
            ContextLost, DeviceStopped: A device was lost.
            Exception: What the model or the loss raised.
        """
        tasks = [asyncio.ensure_future(self._drive(rank)) for rank in range(len(self._table))]
        try:
            await asyncio.gather(*tasks)
        except BaseException:  # also a cancelled step ends its tasks
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        finally:
            for made in self._made.values():
                if not made.done():
                    made.cancel()

    async def _drive(self, rank: int) -> None:
        worker, held = self._crew.actors[rank], self._held[rank]
        replies: list[Reply[Any]] = [worker.call(Worker.begin, *self._begin)]
        for action in self._table[rank]:
            reply = await self._call(worker, action)
            self._of(action).set_result(reply)
            replies.append(reply)
            while held and held[0][0].done():
                held.popleft()
        for reply in replies:
            await reply

    def _of(self, action: Action) -> "asyncio.Future[Reply[Any]]":
        if action not in self._made:
            self._made[action] = asyncio.get_running_loop().create_future()
        return self._made[action]

    async def _result(self, action: Action) -> Any:
        reply = await asyncio.shield(self._of(action))
        return await reply

    async def _call(self, worker: ResidentRef[Worker], action: Action) -> Reply[Any]:
        kind, stage, micro = action
        if kind is Kind.FORWARD:
            return await self._forward(worker, stage, micro)
        reply: Reply[Any]
        if kind is Kind.WEIGHT:
            reply = worker.call(Worker.weights, stage, micro)
        else:
            reply = await self._backward(worker, kind, stage, micro)
        if kind is not Kind.INPUT:
            self._held[self._crew.placed[stage]].append((reply, self._used.pop((stage, micro))))
        return reply

    async def _forward(self, worker: ResidentRef[Worker], stage: int, micro: int) -> Reply[Outputs]:
        batch = self._micros[micro]
        if stage:
            outputs: Outputs = await self._result(Action(Kind.FORWARD, stage - 1, micro))
            batch.route.gave(stage - 1, outputs.names, outputs.values)
        row, named = batch.route.take(stage)
        args = [self._crew.beside(one, stage) for one in row]
        by_name = {name: self._crew.beside(one, stage) for name, one in named.items()}
        self._used[stage, micro] = [*args, *by_name.values()]
        last = (batch.targets, batch.rows, batch.weight, self._total) if stage == self._last else None
        return worker.call(Worker.forward, (self._step, stage, micro), args, by_name, last)

    async def _backward(
        self, worker: ResidentRef[Worker], kind: Kind, stage: int, micro: int
    ) -> Reply[list[Value | None]]:
        route = self._micros[micro].route
        if stage < self._last:
            gradients = await self._result(Action(kind, stage + 1, micro))
            route.passed_back(stage + 1, gradients)
        of_outputs, of_inputs = (
            [None if one is None else self._crew.beside(one, stage) for one in some] for some in route.gradients(stage)
        )
        self._used[stage, micro] += [*of_outputs, *of_inputs]
        return worker.call(Worker.backward, kind is Kind.INPUT, stage, micro, of_outputs, of_inputs)
