"""``SpeculativeDecoder``: decodes several texts at once, with tokens proposed by a draft and verified by a target."""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from callboard.actors.clock import Clock
from callboard.actors.errors import returned
from callboard.core.errors import ContextLost
from callboard.patterns.batching.continuous.base import StepServer
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.contract.outlet import STREAMED
from callboard.patterns.requests.calling import Executor, deliverable
from callboard.patterns.requests.entries import State
from callboard.patterns.requests.errors import ItemTooLarge
from callboard.patterns.requests.waiting import QueueOptions, WaitingLine
from callboard.patterns.speculative.adaptive import KPolicy
from callboard.patterns.speculative.drafts import Draft, FunctionDraft
from callboard.patterns.speculative.figures import SpeculativeStats
from callboard.patterns.speculative.models import KvState, LanguageModel
from callboard.patterns.speculative.requests import Decode, Decoded
from callboard.patterns.speculative.sequence import Sequence
from callboard.patterns.speculative.stepping import Stepper

__all__ = ["SpeculativeDecoder"]


class SpeculativeDecoder(StepServer[Decode, Decoded]):
    """Continues texts with a language model; several tokens per pass where a draft can guess them.

    ::

        async with cb.SpeculativeDecoder(model, cb.NGramDraft(), k=4, max_total_tokens=512, eos=2) as decoder:
            answer = await decoder.submit(cb.Decode([1, 306, 4658]))
            async for token in decoder.stream(cb.Decode([1, 306], temperature=0.8, seed=7)):
                ...

    The tokens are those of plain decoding: equal at temperature 0, and equal in distribution above (unless
    ``acceptance="typical"`` is asked for). Up to ``max_batch`` texts share each pass; a text joins when another one
    ends. :meth:`stream` gives the new tokens as soon as they are certain; while its reader lets it wait, the text takes
    part in no pass. How many tokens are proposed follows from what they gain and cost, both measured, down to none.

    Args:
        target: The model; see :class:`LanguageModel`.
        draft: A :class:`Draft` (:class:`NGramDraft`, :class:`SuffixDraft`, :class:`ModelDraft`), or a function
            ``draft(prefix, k)`` that returns tokens or a :class:`Proposal`; None: plain decoding. A text whose draft
            fails goes on without it. Trees of tokens are verified where the target is a :class:`TreeModel`.
        k: Tokens proposed for a text at most.
        max_total_tokens: Length of a text at most, with its prefix.
        eos: Tokens that end a text, and are part of it.
        adaptive: Otherwise ``k`` tokens are always proposed.
        max_batch: Texts that are decoded at once.
        max_queue: Texts that wait at most.
        queue: Further bounds of the queue, the policy beyond them, and its order; see :class:`QueueOptions`. A text
            costs the tokens of its prefix unless its caller says so.
        idempotent: Texts of a pass that failed may be computed again. False: they end in its error.
        executor: The executor that calls the target's ``forward``; see :class:`UserCall`.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Errors of a request, beside those of :meth:`submit`: what ``stop_when``, ``adjust`` or ``on_tokens`` raised, for its
    own; what ``forward`` raised. Where a pass of several texts fails with an exception, they are computed again from
    the tokens that they have, single ones until one succeeds and then halves of the rest, as by ``on_error="isolate"``
    of a :class:`DynamicBatchingServer`: only those fail that cannot be done. All of them fail with an error that no
    single one causes, such as ``TimeoutError`` or ``BadBatchResult`` (something else than their logits). After a
    ``ContextLost`` each of them is alone for a few passes: the one that loses the context then ends in ``Quarantined``,
    and so do requests of the same key for ten minutes (:class:`Quarantine`).

    Raises:
        ValueError: A setting out of range.
        TypeError: ``target`` has no ``forward`` and ``begin``, or ``draft`` cannot be called.
    """

    def __init__(
        self,
        target: LanguageModel,
        draft: Draft | Callable[[list[int], int], Any] | None = None,
        *,
        k: int = 4,
        max_total_tokens: int = 2048,
        eos: int | Iterable[int] = (),
        adaptive: bool = True,
        max_batch: int = 32,
        max_queue: int = 1024,
        queue: QueueOptions = QueueOptions(),  # noqa: B008 -- frozen
        idempotent: bool = True,
        executor: Executor = "auto",
        name: str = "decoder",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock, WaitingLine(max_queue, queue), "passes", idempotent=idempotent)
        check_whole(2, max_total_tokens=max_total_tokens)
        check_whole(1, max_batch=max_batch)
        if not callable(getattr(target, "forward", None)) or not callable(getattr(target, "begin", None)):
            raise TypeError(f"target is {target!r}; it must have forward(states, tokens, rows) and begin()")
        self._begun = target.begin
        self._most_tokens = max_total_tokens
        self._eos = frozenset([eos] if isinstance(eos, int) else eos)
        self._max_batch = max_batch
        used = draft if draft is None or isinstance(draft, Draft) else FunctionDraft(draft)
        trees = used is not None and used.trees and getattr(target, "forward_tree", None) is not None
        self._policy = KPolicy(k, adaptive=adaptive, trees=trees)
        self._stepper = Stepper(target, used, self._policy, executor, self._clock, self._sequence_failed)
        self._running: list[Sequence] = []

    def _begin(self) -> KvState:
        """The target's state of a new sequence."""
        state: Any = self._begun()
        if not all(callable(getattr(state, name, None)) for name in ("rollback", "close")):
            raise returned("begin of the target", state, "the state of a sequence, with rollback(n) and close()")
        began: KvState = state
        return began

    # -- for users -----------------------------------------------------------------------------------------------------

    def stats(self) -> SpeculativeStats:
        """Figures since the start. It reads counters only; on the server's loop."""
        figures = self._stepper.figures
        return SpeculativeStats(
            **self._queue_figures(),
            iterations=figures.iterations,
            new_tokens=figures.new_tokens,
            draft_tokens=figures.draft_tokens,
            accepted_tokens=figures.accepted_tokens,
            acceptance_by_position=figures.acceptance_by_position,
            mean_accepted_length=figures.mean_accepted_length,
            speedup=figures.speedup,
            draft_failures=figures.draft_failures,
            step_time=figures.step_time.snapshot(),
            batch_size=figures.batch_size.snapshot(),
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _key(self, item: Decode) -> Hashable:
        given: Any = item
        if not isinstance(given, Decode):
            raise TypeError(f"{self.name} decodes a Decode, but was given {item!r}")
        if len(item.prefix) >= self._most_tokens:
            raise ItemTooLarge(
                f"the prefix has {len(item.prefix)} tokens, and max_total_tokens is {self._most_tokens}: no token "
                "fits; shorten the prefix, or raise max_total_tokens"
            )
        return None

    def _cost(self, item: Decode) -> float:
        given: Any = item
        return len(item.prefix) if isinstance(given, Decode) else 1  # _key refuses what is none

    def _runs_on(self) -> list[Any]:
        return [self._stepper.call]

    # -- passes --------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Run passes as long as there is a text."""
        try:
            while self._stopping is None:
                self._join()
                if not self._running:
                    break
                ready = [sequence for sequence in self._running if not sequence.held]
                if not ready:  # all readers are slow
                    self._changed.clear()
                    await self._changed.wait()
                    self._end_texts()
                    continue
                ready = self._guard.choose(ready)
                entries = [sequence.entry for sequence in ready]
                cause, started = self._cause(entries), self._clock.time()
                try:
                    async with self._guard.step(entries):
                        await self._stepper.step(ready)
                    self._guard.succeeded(entries)
                    self._batch_ran(len(entries), self._clock.time() - started, True, cause)
                except Exception as e:  # the user's model may raise anything: its requests end in that
                    self._batch_ran(len(entries), self._clock.time() - started, False, cause)
                    self._pass_failed(ready, deliverable(e))
                self._end_texts()
                await asyncio.sleep(0)  # a model that is called on the loop may never suspend
        except BaseException:  # cancelled, by stop() or with its loop, or Ctrl-C: the texts have no other end
            for sequence in self._running:
                self._fail(sequence.entry, self._stopped(), "stopped")
            raise
        finally:
            for sequence in self._running:
                self._stepper.end(sequence)
            self._running = []

    def _join(self) -> None:
        """Let texts that wait join, in the order of urgency."""
        while len(self._running) < self._max_batch and (entry := self._take()) is not None:
            try:
                rates = self._policy.rates()
                state = self._begin()
                sequence = Sequence(entry, entry.item, state, rates, self._most_tokens, self._eos)
            except Exception as e:  # of the user's model, or of a prefix that is none: this request ends in it
                self._fail(entry, deliverable(e))
                continue
            self._running.append(sequence)
            self._stepper.open(sequence)

    def _end_texts(self) -> None:
        """Answer the texts that are done, and let go of those that have ended otherwise."""
        left: list[Sequence] = []
        now = self._clock.time()
        for sequence in self._running:
            if sequence.finish is not None:
                streamed = sequence.entry.outlet is not None
                self._succeed(sequence.entry, STREAMED if streamed else sequence.decoded(), now)
            if sequence.entry.state is State.RUNNING:
                left.append(sequence)
            else:
                self._stepper.end(sequence)
        self._running = left

    def _sequence_failed(self, sequence: Sequence, error: Exception) -> None:
        sequence.finish = None
        self._fail(sequence.entry, error)

    def _pass_failed(self, tried: list[Sequence], error: Exception) -> None:
        """End texts that cannot be done; begin the others again: those of the pass, and after a loss all."""
        ends = self._guard.failed([sequence.entry for sequence in tried], error)
        for number, end in ends.items():
            if number in self._open:
                self._fail(self._open[number], end)
        for sequence in self._running if isinstance(error, ContextLost) else tried:
            if sequence.entry.state is State.RUNNING:
                self._begin_again(sequence)

    def _begin_again(self, sequence: Sequence) -> None:
        self._stepper.close_state(sequence)
        try:
            sequence.state = self._begin()
            sequence.pending = len(sequence.tokens)
        except Exception as e:  # of the user's model: this request ends in it
            self._fail(sequence.entry, deliverable(e))

    # -- life ----------------------------------------------------------------------------------------------------------

    async def _end_work(self) -> None:
        self._stepper.close()
        await self._worker.end(interrupt=not self._stepper.on_thread, still="a model still runs")
