"""``MoeRouter``: callers submit tokens, a gate chooses experts for them, each expert is called once with its tokens."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from callboard.actors.clock import Clock
from callboard.core.ref import GpuRef
from callboard.patterns.contract.checks import check_choice, check_whole
from callboard.patterns.contract.taking import taken
from callboard.patterns.moe.arrays import Array, array_of
from callboard.patterns.moe.backward import MoeBackward, MoeGradients, Tape, gradients
from callboard.patterns.moe.balance import entropy, load_of, updated_bias
from callboard.patterns.moe.dispatch import Capacity, CapacityPolicy, Dispatch, combine, dispatch, without
from callboard.patterns.moe.errors import BadGate
from callboard.patterns.moe.experts import Expert, Experts
from callboard.patterns.moe.gate import Choice, TopK, choose, jittered
from callboard.patterns.moe.grouped import GroupedExperts
from callboard.patterns.moe.results import MoeResult, MoeStats
from callboard.patterns.requests.calling import Executor, deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.queueing import QueueServer
from callboard.patterns.requests.stats import Histogram
from callboard.patterns.requests.waiting import QueueOptions, WaitingLine
from callboard.patterns.requests.workers import WorkerPool

__all__ = ["MoeRouter"]

LARGE = 1 << 20
"""Numbers in the tokens of a request from which on choosing, sorting and summing are done on a thread."""

FORGET = 0.9
"""Weight of a request relative to the one after it, in the mean time of one."""


class MoeRouter(QueueServer[Any, MoeResult]):
    """Routes tokens to experts and returns the weighted sums of their results.

    ::

        async with cb.MoeRouter(gate, experts, top_k=2) as router:
            result = await router.submit(tokens)  # [tokens, width]

    A request is a matrix of tokens (or an array of more axes, of which the last is the width; or one token): of NumPy,
    or what converts to it without a copy, such as a CPU tensor of torch's. Its tokens are sorted by expert, each expert
    that has any is called once with a contiguous view of its rows, all of them at once, and the results are weighted
    and summed in the order of the experts' numbers: equal results give equal bits, whichever came first. A request
    costs as much as it has tokens.

    Args:
        gate: Gets the tokens, ``[tokens, width]``, and returns (or is awaited for) their logits, ``[tokens, experts]``.
        experts: Each gets rows ``[n, width]``, which it may overwrite, and returns one row for each of them, of any
            width that is the same for all experts. A plain function, an async one, a ``functools.partial`` of a
            resident actor's ``call``, or a chain of device ops; or a list of several that do the same, of which the one
            with the fewest rows in it is called. Or :class:`GroupedExperts`: all of them as grouped products on a
            device, in one call.
        top_k: The number of experts a token has; or a :class:`TopK`, for how they are chosen and weighted.
        shared: Experts that get all tokens, and must not overwrite them; their results are added with weight 1.
        capacity: What happens to tokens whose expert is full: ``"dropless"`` (it never is), ``"drop"`` or
            ``"reroute"``; see :class:`CapacityPolicy`.
        capacity_factor: Rows of an expert at most, in multiples of an even load, unless ``"dropless"``.
        jitter: The gate's tokens are multiplied by random numbers within ``1 - jitter`` and ``1 + jitter``.
        seed: Of these. They depend on it and on the position of the request in the order of submission.
        on_expert_error: ``"fail"``: where an expert fails, the request ends in its error (of several, that of the
            lowest number). ``"renormalise"``: its weight is shared out among the token's other experts; the request
            fails only if a token has none left. A shared expert that fails always fails the request.
        backward: Computes gradients of gate and experts, for :meth:`backward`. Results then hold what that needs:
            the tokens and the results of the experts.
        max_concurrent: Requests that run at once. With more than one, experts are called for several at once.
        max_queue: Requests that wait at most.
        queue: Further bounds of the queue, the policy beyond them, and its order; see :class:`QueueOptions`. The cost
            of a request is the number of its tokens.
        executor: Where gate and experts are called: ``"auto"``: async functions and methods of a ``ResidentRef`` on
            the loop, others on threads. Or ``"loop"``, ``"thread"``, or an executor of the caller's.
        threads: Threads at most; None: one per core, and no more than experts.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Raises:
        ValueError: A setting out of range, or one that does not fit the number of experts.
        TypeError: The gate or an expert cannot be called.
    """

    def __init__(
        self,
        gate: Callable[[Any], Any],
        experts: Sequence[Expert | Sequence[Expert]] | GroupedExperts,
        *,
        top_k: int | TopK = 2,
        shared: Sequence[Expert] = (),
        capacity: CapacityPolicy | Literal["dropless", "drop", "reroute"] = CapacityPolicy.DROPLESS,
        capacity_factor: float = 1.25,
        jitter: float = 0.0,
        seed: int = 0,
        on_expert_error: Literal["fail", "renormalise"] = "fail",
        backward: MoeBackward | None = None,
        max_concurrent: int = 1,
        max_queue: int = 1024,
        queue: QueueOptions = QueueOptions(),  # noqa: B008 -- frozen
        executor: Executor = "auto",
        threads: int | None = None,
        name: str = "router",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock, WaitingLine(max_queue, queue))
        if not 0 <= jitter < 1:
            raise ValueError(f"jitter must be at least 0 and below 1, but is {jitter}")
        check_choice("on_expert_error", on_expert_error, "fail", "renormalise")
        check_whole(1, max_concurrent=max_concurrent)
        self._rule = top_k if isinstance(top_k, TopK) else TopK(top_k)
        self._rule.check(len(experts))
        self._capacity = Capacity(CapacityPolicy(capacity), capacity_factor)
        self._experts = Experts(experts, shared, executor, threads)
        self._gate = self._experts.caller(gate)
        self._jitter, self._seed = jitter, seed
        self._backward = backward
        if backward is not None and (len(backward.experts), len(backward.shared)) != (len(experts), len(shared)):
            given = f"{len(backward.experts)} experts and {len(backward.shared)} shared ones"
            raise ValueError(f"backward is for {given}, and there are {len(experts)} and {len(shared)}")
        self._renormalises = on_expert_error == "renormalise"
        self._max_concurrent = max_concurrent
        self._workers = WorkerPool(self, "requests", self._pump)
        self._tokens = self._dropped = self._rerouted = 0
        self._load = np.zeros(len(experts), np.int64)
        self._failed_calls = np.zeros(len(experts), np.int64)
        self._chosen = np.zeros(len(experts), np.int64)  # since the last update of the bias
        self._run_time = Histogram()
        self._seconds: float | None = None  # of a request, about

    # -- for users -----------------------------------------------------------------------------------------------------

    @property
    def top_k(self) -> TopK:
        """The current choice of experts."""
        return self._rule

    def update_bias(self, rate: float = 0.001) -> Array:
        """Move the bias against the load since the last update, for requests from now on. On the server's loop.

        The load is that of the choices, before any capacity. This is load balancing without a loss, for training
        (DeepSeek-V3); see :func:`callboard.patterns.moe.balance.updated_bias`.

        Returns:
            The new bias.
        """
        bias = self._rule.bias if self._rule.bias is not None else np.zeros(len(self._experts), np.float32)
        bias = updated_bias(bias, self._chosen, rate)
        self._rule = replace(self._rule, bias=bias)
        self._chosen[:] = 0
        return bias

    async def backward(
        self, result: MoeResult, grad: Any, *, load_balancing: float = 0.0, z: float = 0.0
    ) -> MoeGradients:
        """The gradients of a request, through its experts, weights and gate. On the server's loop.

        Each expert that had rows is called once with them, all of them at once; then the gate is. The callables of
        ``MoeBackward`` add up the gradients of their parameters themselves.

        Args:
            result: Of :meth:`submit`.
            grad: Gradient of its ``output``, in that shape.
            load_balancing, z: Weights of the two losses in what is differentiated; 0: without them.

        Raises:
            ValueError: The router was given no ``backward``, an expert had failed, or the shapes differ.
            BadExpertResult: What a callable returned is no gradient of its rows.
            ServerStopped: The router has stopped.
            Exception: Raised by a callable, the first expert's of several.
        """
        tape, ways = result.tape, self._backward
        if tape is None or ways is None:
            raise ValueError("there is nothing to differentiate by: give the router backward=")
        if result.failed:
            raise ValueError(f"experts {result.failed} had failed, so the result has no gradient")
        if self._loop is None or self._stopping is not None:
            raise self._refusal()
        given = taken(array_of(grad, "the gradient"))
        if given.shape != result.output.shape:
            raise ValueError(f"the gradient is {list(given.shape)}, and the output {list(result.output.shape)}")
        return await gradients(ways, self._experts, tape, result.choice, given, load_balancing, z)

    def stats(self) -> MoeStats:
        """Figures since the start. It reads counters only; on the server's loop."""
        return MoeStats(
            **self._queue_figures(),
            tokens=self._tokens,
            load=tuple(self._load.tolist()),
            entropy=entropy(self._load),
            choices_dropped=self._dropped,
            choices_rerouted=self._rerouted,
            failed_calls=tuple(self._failed_calls.tolist()),
            run_time=self._run_time.snapshot(),
        )

    # -- the queue -----------------------------------------------------------------------------------------------------

    def _cost(self, item: Any) -> float:
        return math.prod(_tokens(item).shape[:-1])

    def _add(self, entry: Entry, now: float, *, may_block: bool) -> list[Entry]:
        entry.item = _tokens(entry.item)
        return super()._add(entry, now, may_block=may_block)

    def _retry_after(self) -> float | None:
        return None if self._seconds is None else self._seconds / self._max_concurrent

    def _pump(self) -> None:
        """Start as many workers as there is work for."""
        if self._loop is None or self._stopping is not None:
            return
        workers = self._workers
        while self._line.count > workers.starting and len(workers.tasks) < self._max_concurrent:
            workers.start(self._work())

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Run requests as long as there are any."""
        self._workers.starting = max(0, self._workers.starting - 1)
        while self._stopping is None and (entry := self._take()) is not None:
            await self._run(entry)

    async def _run(self, entry: Entry) -> None:
        """Run a request to its end."""
        self._cause([entry])
        try:
            result = await self._result(entry)
            if result is not None:
                self._finish(entry, result)
        except Exception as e:  # of the gate or of an expert, which may raise anything: the request ends in that
            self._fail(entry, deliverable(e))
        except BaseException:  # cancelled, by stop() or with its loop, or Ctrl-C: it has no other end
            self._fail(entry, self._stopped(), "stopped")
            raise

    def _finish(self, entry: Entry, result: MoeResult) -> None:
        now = self._clock.time()
        seconds = now - entry.started
        self._run_time.add(seconds)
        self._seconds = seconds if self._seconds is None else FORGET * self._seconds + (1 - FORGET) * seconds
        self._succeed(entry, result, now)

    async def _result(self, entry: Entry) -> MoeResult | None:
        """The value of a request; None if the request has ended meanwhile, so that its remaining work is not needed."""
        shape = entry.item.shape
        tokens: Array = entry.item.reshape(math.prod(shape[:-1]), shape[-1])
        rule, large = self._rule, tokens.size >= LARGE
        seen = jittered(tokens, self._jitter, self._seed, entry.number) if self._jitter else tokens
        logits = await self._gate(seen)
        if isinstance(logits, GpuRef):
            logits = await logits.get()
        prepare = (tokens, logits, rule, self._capacity, len(self._experts))
        choice, plan, rows = await self._experts.compute(_prepared, *prepare) if large else _prepared(*prepare)
        if entry.state is not State.RUNNING:
            return None
        self._note(choice, plan)
        results, errors, shared = await self._experts.run(plan, rows, tokens)
        for expert in errors:
            self._failed_calls[expert] += 1
        if entry.state is not State.RUNNING:
            return None
        if errors:
            plan = self._without(plan, errors)
        sums = (plan, results, shared, tokens.shape[1], tokens.dtype)
        output = await self._experts.compute(combine, *sums) if large else combine(*sums)
        output = output.reshape(*shape[:-1], output.shape[1])
        tape = None
        if self._backward is not None:
            factors = None
            if self._jitter:
                factors = jittered(np.ones_like(tokens), self._jitter, self._seed, entry.number)
            tape = Tape(tokens, factors, rule, plan, plan.experts, results)
        return MoeResult(output, choice, plan.load, plan.dropped, plan.rerouted, tuple(errors), tape)

    def _note(self, choice: Choice, plan: Dispatch) -> None:
        self._tokens += plan.count
        self._load += plan.load
        self._chosen += load_of(choice)
        self._dropped += plan.dropped
        self._rerouted += plan.rerouted

    def _without(self, plan: Dispatch, errors: dict[int, Exception]) -> Dispatch:
        """The dispatch without the experts that failed; raises the error of one if that is not to be."""
        if self._renormalises:
            rest, unassigned = without(plan, list(errors))
            if not len(unassigned):
                return rest
            error = next(errors[e] for e in errors if unassigned[0] in plan.tokens[plan.of(e)])
            error.add_note(f"token {unassigned[0]} has no other expert left")
            raise error
        raise next(iter(errors.values()))

    # -- life ----------------------------------------------------------------------------------------------------------

    def _may_run_on(self) -> list[Any]:
        return [self._gate, *self._experts.calls]

    async def _end_work(self) -> None:
        # What runs on the loop is cancelled, what runs on our threads is waited for.
        interrupt, others = not self._experts.elsewhere, [self._experts.close()]
        await self._workers.end(interrupt=interrupt, still="experts still run", others=others)


def _tokens(item: Any) -> Array:
    tokens = array_of(item, "tokens")
    if not tokens.ndim:
        raise TypeError("tokens must be an array whose last axis is their width, but are a number")
    return tokens


def _prepared(
    tokens: Array, logits: Any, rule: TopK, capacity: Capacity, experts: int
) -> tuple[Choice, Dispatch, Array]:
    """Choose experts, and sort the tokens by them."""
    logits = array_of(logits, "the gate's logits")
    if logits.shape != (len(tokens), experts):
        expected = f"[{len(tokens)}, {experts}], one for each token and expert"
        raise BadGate(f"the gate returned logits {list(logits.shape)}, not {expected}")
    choice = choose(logits, rule)
    plan = dispatch(choice, rule, capacity)
    return choice, plan, np.take(tokens, plan.tokens, axis=0)
