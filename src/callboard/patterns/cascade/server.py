"""``InferenceCascade``: each request runs through models of rising cost until one is sure of its answer."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self, TypeVar

from callboard.actors.clock import Clock
from callboard.events.concerns import TRACE
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.cascade.calibration import Calibration, calibrate
from callboard.patterns.cascade.drift import Drift
from callboard.patterns.cascade.shadow import ShadowRuns
from callboard.patterns.cascade.stages import (
    CascadeReply,
    CascadeStage,
    CascadeStats,
    NoConfidence,
    OnError,
    StageStats,
    clears,
    on_failure,
)
from callboard.patterns.contract.atcall import as_given
from callboard.patterns.contract.hooks import truth
from callboard.patterns.contract.taking import taken
from callboard.patterns.requests.calling import deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import DeadlineExceeded, QueueFull
from callboard.patterns.requests.server import RequestServer

__all__ = ["InferenceCascade"]

T = TypeVar("T")
R = TypeVar("R")


class _Flight:
    """The progress of a request: its stage, the last answer, the futures of the stage's and the next stage's server."""

    __slots__ = ("ahead", "deadline", "future", "index", "reply")

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.index = 0
        self.reply: CascadeReply[Any] | None = None
        self.future: asyncio.Future[Any] | None = None
        self.ahead: asyncio.Future[Any] | None = None


class InferenceCascade(RequestServer[T, CascadeReply[R]]):
    """Answers requests by a small model if it is confident, and by larger ones otherwise.

    ::

        stages = [cb.CascadeStage(small, threshold=0.9), cb.CascadeStage(large)]
        async with cb.InferenceCascade[str, str](stages) as cascade:
            reply = await cascade.submit("hello")

    Each stage is a ``DynamicBatchingServer``, so what is escalated is batched anew. The first stage whose confidence
    is at least its threshold answers, else the last one. A request that has an answer when its deadline comes ends in
    that answer, marked as degraded.

    Args:
        stages: From the cheapest on.
        ahead: A request whose deadline leaves no time for one stage after the other, by the times measured, enters the
            next stage together with this one (unless that takes drafts). The first answer of the two that clears its
            threshold is given, and the other call is cancelled.
        shadow: Share of the requests that an earlier stage has answered for which the last stage runs as well, behind
            their answers, to be compared; 0 to 1.
        agree: Returns True if two answers are equal, for ``shadow``.
        seed: Of the choice of requests for ``shadow``.
        drift: When an alarm is raised because answers escalate more or less often than by the calibration, or agree
            more or less often in shadow runs than before, or because confidences from 0 to 1 are further from the
            share that agrees in shadow runs than they were; None: never.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Raises:
        ValueError: There are no stages, or a setting is out of range.
        TypeError: A stage is not a ``CascadeStage``, or its function cannot be called.
    """

    def __init__(
        self,
        stages: Sequence[CascadeStage],
        *,
        ahead: bool = False,
        shadow: float = 0.0,
        agree: Callable[[Any, Any], bool] = lambda a, b: bool(a == b),
        seed: int = 0,
        drift: Drift | None = None,
        name: str = "cascade",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock)
        if not stages:
            raise ValueError("a cascade needs at least one stage")
        for stage in stages:
            if not isinstance(stage, CascadeStage):
                raise TypeError(f"a stage is {stage!r}; give a cb.CascadeStage(function, threshold=...)")
        self._stages = tuple(stages)
        self._servers: list[DynamicBatchingServer[Any, Any]] = [
            DynamicBatchingServer(stage.function, name=f"{name}, stage {n}", clock=self._clock, **stage.batching)
            for n, stage in enumerate(stages)
        ]
        self._ahead = ahead
        self._shadow = ShadowRuns(
            *(self, self._servers[-1], stages[-1].answer),
            draft=stages[-1].draft,
            share=shadow,
            agree=agree,
            seed=seed,
            drift=drift,
            stages=len(stages),
        )
        self._answered, self._escalated, self._failures, self._aheads = ([0] * len(stages) for _ in range(4))
        self._degraded = 0

    # -- for users -----------------------------------------------------------------------------------------------------

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Of all stages but the last."""
        return tuple(stage.threshold for stage in self._stages[:-1])

    def set(self, thresholds: Iterable[float]) -> None:
        """Use other thresholds from now on. On the cascade's loop.

        Raises:
            ValueError: There is not one for each stage but the last, or one is NaN; nothing is changed.
        """
        found = [float(threshold) for threshold in thresholds]
        if len(found) != len(self._stages) - 1:
            raise ValueError(f"{len(found)} thresholds for {len(self._stages)} stages; all but the last have one")
        changed = [replace(stage, threshold=new) for stage, new in zip(self._stages, found, strict=False)]
        self._stages = (*changed, self._stages[-1])
        self._shadow.expect(None)

    async def calibrate(
        self,
        items: Iterable[T],
        labels: Iterable[Any],
        *,
        max_loss: float | None = None,
        budget: float | None = None,
        right: Callable[[Any, Any], bool] = lambda answer, label: bool(answer == label),
    ) -> Calibration:
        """Run every stage on every item, choose thresholds by the result, and use them.

        Args:
            items, labels: Ones that the models were not trained on and the cascade is not judged by.
            max_loss, budget: As for :func:`calibrate`; costs are those of the stages.
            right: Returns True if an answer is right for a label.

        Raises:
            ValueError: As :func:`calibrate`.
            Exception: Raised by a stage.
        """
        given = [taken(item) for item in items]
        expected = list(labels)
        if len(given) != len(expected):
            raise ValueError(f"{len(given)} items, but {len(expected)} labels")
        columns: list[list[tuple[Any, float]]] = []
        drafts: list[Any] = [None] * len(given)
        for stage, server in zip(self._stages, self._servers, strict=True):
            found = []
            width = server._policy.settings.max_batch
            for start in range(0, len(given), width):
                part = zip(given[start : start + width], drafts[start : start + width], strict=True)
                work = [as_given(server.submit)(pair if stage.draft else pair[0]) for pair in part]
                found += [stage.answer(result) for result in await asyncio.gather(*work)]
            columns.append(found)
            drafts = [answer for answer, _ in found]
        chosen = calibrate(
            [[sure for _, sure in row] for row in zip(*columns[:-1], strict=True)],
            [
                [truth("right", right(answer, label)) for answer, _ in row]
                for row, label in zip(zip(*columns, strict=True), expected, strict=True)
            ],
            [stage.cost for stage in self._stages],
            max_loss=max_loss,
            budget=budget,
        )
        self.set(chosen.thresholds)
        self._shadow.expect(chosen.escalated, self._early(list(zip(*columns, strict=True))))
        return chosen

    def _early(self, rows: Sequence[Sequence[tuple[Any, float]]]) -> list[tuple[Any, float, Any]]:
        """The answers of stages before the last that would have been given, with their confidences and the last's."""
        found: list[tuple[Any, float, Any]] = []
        for row in rows:
            for stage, (answer, confidence) in zip(self._stages[:-1], row, strict=False):
                if clears(confidence, stage.threshold, last=False):
                    found.append((answer, confidence, row[-1][0]))
                    break
        return found

    def stats(self) -> CascadeStats:
        """Figures since the start. It reads counters only; on the cascade's loop."""
        batching = [server.stats() for server in self._servers]
        figures = self._figures(0, 0, sum(each.queued_cost for each in batching))
        figures["queue_time"] = batching[0].queue_time
        return CascadeStats(
            **figures,
            degraded=self._degraded,
            shadowed=self._shadow.compared,
            agreed=self._shadow.agreed,
            drifted=self._shadow.drifted,
            stages=tuple(
                StageStats(*each)
                for each in zip(self._answered, self._escalated, self._failures, batching, self._aheads, strict=True)
            ),
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _runs_on(self) -> list[Any]:
        return list(self._servers)

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        flight = _Flight(entry.deadline)
        entry.deadline = None  # the stages look after it, since an answer may be there when it comes
        entry.key = flight
        self._enter_stage(entry, flight)
        entry.state = State.QUEUED

    def _enter_stage(self, entry: Entry, flight: _Flight) -> None:
        flight.future = self._submit(entry, flight, flight.index)
        flight.future.add_done_callback(lambda future: self._stage_ended(entry, flight, future), context=self._context)
        if self._is_late(flight):
            try:
                flight.ahead = self._submit(entry, flight, flight.index + 1)
            except Exception:  # full, or a hook of the stage's server: it is asked again when its turn comes
                return
            self._aheads[flight.index + 1] += 1
            flight.ahead.add_done_callback(
                lambda future: self._ahead_ended(entry, flight, future), context=self._context
            )

    def _submit(self, entry: Entry, flight: _Flight, index: int) -> "asyncio.Future[Any]":
        stage, outer = self._stages[index], TRACE.get()
        self._cause([entry])
        draft = None if flight.reply is None else flight.reply.response
        try:
            return as_given(self._servers[index].submit_nowait)(
                (entry.item, draft) if stage.draft else entry.item,
                deadline=flight.deadline,
                timeout=stage.timeout,
                priority=entry.priority,
                cost=entry.cost,
            )
        finally:
            TRACE.set(outer)

    def _is_late(self, flight: _Flight) -> bool:
        """True if the deadline leaves too little time for this stage followed by the next one."""
        follows = flight.index + 1
        if not self._ahead or flight.deadline is None or follows == len(self._stages) or self._stages[follows].draft:
            return False
        these = [server.expected_seconds for server in self._servers[flight.index : follows + 1]]
        return flight.deadline < self._clock.time() + sum(seconds for seconds in these if seconds is not None)

    def _leave(self, entry: Entry) -> None:
        flight = entry.key
        if isinstance(flight, _Flight):
            for future in (flight.future, flight.ahead):
                if future is not None:
                    future.cancel()

    def _no_room(self, entry: Entry) -> Exception:
        return QueueFull(f"{self.name}: the first stage has no room")

    # -- stages --------------------------------------------------------------------------------------------------------

    def _ahead_ended(self, entry: Entry, flight: _Flight, future: "asyncio.Future[Any]") -> None:
        """A stage that was entered ahead has ended: its answer counts now if it clears, else when its turn comes."""
        if entry.state is State.ENDED or future.cancelled():
            return
        if flight.future is future:
            self._stage_ended(entry, flight, future)
        elif future.exception() is None:
            index = flight.index + 1
            with suppress(Exception):  # of a hook: it is this stage's failure when its turn comes
                answer, confidence = self._stages[index].answer(future.result())
                if clears(confidence, self._stages[index].threshold, last=index == len(self._stages) - 1):
                    earlier, flight.ahead = flight.future, None
                    self._answer(entry, flight, CascadeReply(answer, index, confidence))
                    if earlier is not None:
                        earlier.cancel()

    def _stage_ended(self, entry: Entry, flight: _Flight, future: "asyncio.Future[Any]") -> None:
        error = None if future.cancelled() else future.exception()
        if entry.state is State.ENDED or future.cancelled():
            return
        index = flight.index
        stage, last = self._stages[index], index == len(self._stages) - 1
        if error is None:
            try:
                answer, confidence = stage.answer(future.result())
            except NoConfidence as e:
                self._failures[index] += 1
                self._fail(entry, e)
                return
            except Exception as e:  # of a hook: this stage has failed for this request
                error = e
            else:
                flight.reply = CascadeReply(answer, index, confidence)
                if clears(confidence, stage.threshold, last=last):
                    self._answer(entry, flight, flight.reply)
                else:
                    self._escalated[index] += 1
                    self._escalate(entry, flight)
                return
        self._stage_failed(entry, flight, deliverable(error))

    def _escalate(self, entry: Entry, flight: _Flight) -> None:
        flight.index += 1
        if flight.ahead is not None:
            flight.future, flight.ahead = flight.ahead, None
            if flight.future.done():
                self._stage_ended(entry, flight, flight.future)
            return
        try:
            self._enter_stage(entry, flight)
        except Exception as e:  # full, too late, or a hook of the stage's server
            self._stage_failed(entry, flight, e)

    def _stage_failed(self, entry: Entry, flight: _Flight, error: Exception) -> None:
        self._failures[flight.index] += 1
        late = isinstance(error, DeadlineExceeded | QueueFull)
        stage, last = self._stages[flight.index], flight.index == len(self._stages) - 1
        follows = on_failure(OnError(stage.on_error), last=last, answered=flight.reply is not None, late=late)
        over = flight.deadline is not None and flight.deadline <= self._clock.time()
        if isinstance(error, QueueFull) and flight.reply is None:  # no reason to ask a larger model
            self._fail(entry, error, "dropped")
        elif follows is OnError.ESCALATE and not over:
            self._escalate(entry, flight)
        elif follows is OnError.FALLBACK and flight.reply is not None:
            self._degraded += 1
            self._answer(entry, flight, replace(flight.reply, degraded=True))
        else:
            self._fail(entry, error, "expired" if isinstance(error, DeadlineExceeded) else "failed")

    def _answer(self, entry: Entry, flight: _Flight, reply: CascadeReply[Any]) -> None:
        self._answered[reply.stage_index] += 1
        self._shadow.answered(reply.stage_index, degraded=reply.degraded)
        item, flight.future = entry.item, None
        self._succeed(entry, reply, self._clock.time())
        if not reply.degraded and reply.stage_index < len(self._stages) - 1 and not self._closing:
            self._shadow.run(item, reply.response, reply.confidence)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        await super().start()
        for server in self._servers:
            await server.start()
        return self

    def _drain(self) -> None:
        for server in self._servers:
            server.flush_now()

    async def _end_work(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers))
