"""``Stepper``: one pass over the sequences that run: propose, verify, keep."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock
from callboard.actors.errors import printable, returned
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.entries import State
from callboard.patterns.speculative.adaptive import KPolicy, Room
from callboard.patterns.speculative.drafts import Ask, Draft, Proposal, checked
from callboard.patterns.speculative.figures import Figures
from callboard.patterns.speculative.models import LanguageModel
from callboard.patterns.speculative.sequence import Sequence
from callboard.patterns.speculative.trees import children, path_to
from callboard.patterns.speculative.verify import logits_of

__all__ = ["Stepper"]

_log = logging.getLogger(__name__)

NOTHING = Proposal([])


class Stepper:
    """Runs passes.

    Args:
        target: The model whose tokens are wanted.
        draft: Proposes; None: plain decoding.
        policy: Policy that chooses the number of proposed tokens.
        executor: The executor that calls the target's ``forward``.
        clock: Tells the time.
        failed: Called with a sequence that ends in an error.

    Attributes:
        call: Calls the target's ``forward``.
    """

    def __init__(
        self,
        target: LanguageModel,
        draft: Draft | None,
        policy: KPolicy,
        executor: Executor,
        clock: Clock,
        failed: Callable[[Sequence, Exception], None],
    ) -> None:
        self.call = UserCall(target.forward, executor, 1)
        tree: Any = getattr(target, "forward_tree", None)
        self._tree = None if tree is None or draft is None or not draft.trees else UserCall(tree, executor, 1)
        self._draft = draft
        self._policy = policy
        self._clock = clock
        self._failed = failed
        self._vocabulary: int | None = None
        self.figures = Figures(policy.k)
        self.on_thread = self.call.on_thread or (draft is not None and draft.on_thread)

    def close(self) -> None:
        """No more passes will come."""
        self.call.close()
        if self._tree is not None:
            self._tree.close()
        if self._draft is not None:
            self._draft.close()

    def open(self, sequence: Sequence) -> None:
        """A sequence is about to run."""
        k = self._policy.k if sequence.request.k is None else min(sequence.request.k, self._policy.k)
        if self._draft is None or not k:
            return
        try:
            sequence.draft = self._draft.begin()
            sequence.speculates = True
        except Exception as e:  # of the user's draft: the sequence runs without it
            self._without_draft(sequence, e)

    def end(self, sequence: Sequence) -> None:
        """End a sequence: its states are closed, once."""
        if sequence.speculates:
            self._end_draft(sequence)
        self.close_state(sequence)

    def close_state(self, sequence: Sequence) -> None:
        """Discard the target's state of a sequence."""
        try:
            sequence.state.close()
        except Exception:  # of the user's model: nothing depends on it
            _log.exception("close() of a model's state failed")

    async def step(self, sequences: list[Sequence]) -> None:
        """One pass over these sequences, which run.

        Raises:
            Exception: The exception of the target's ``forward``, or :class:`BadBatchResult`. No sequence has changed,
                but the states of the target are no longer usable.
        """
        fresh = any(sequence.pending > 1 for sequence in sequences)
        proposals, drafting = await self._propose(sequences)
        started = self._clock.time()
        left = [(each, found) for each, found in zip(sequences, proposals, strict=True) if _runs(each)]
        if not left:
            return
        inputs = [each.tokens[-each.pending :] + list(found.tokens) for each, found in left]
        rows = [len(found.tokens) + 1 for _, found in left]
        states = [each.state for each, _ in left]
        branches = any(found.parents is not None for _, found in left)
        if branches and self._tree is not None:
            parents = [_parents(each.pending, found) for each, found in left]
            given = await self._tree(states, inputs, parents, rows)
        else:
            given = await self.call(states, inputs, rows)
        found = logits_of(given, rows)
        self._vocabulary = found[0].shape[1]
        seconds = self._clock.time() - started
        new = 0
        for (sequence, proposal), logits in zip(left, found, strict=True):
            if _runs(sequence):
                try:
                    new += self._keep(sequence, proposal, logits, branches=branches)
                except Exception as e:  # of a hook or a state of this sequence, or logits that are not numbers
                    self._failed(sequence, deliverable(e))
        if not fresh:
            self._policy.measured(sum(rows), seconds, max(rows) - 1, drafting)
            plain = self._policy.seconds(len(left), 0)
            if plain:
                self.figures.compared(new * plain / len(left), self._policy.seconds(sum(rows), max(rows) - 1))
        self.figures.iterations += 1
        self.figures.step_time.add(drafting + seconds)
        self.figures.batch_size.add(len(left))

    # -- propose -------------------------------------------------------------------------------------------------------

    async def _propose(self, sequences: list[Sequence]) -> tuple[list[Proposal], float]:
        """A proposal for each sequence, and the seconds that the draft took."""
        found = [NOTHING] * len(sequences)
        if self._draft is None or self._vocabulary is None:  # the first pass determines the vocabulary
            return found, 0.0
        ks = self._policy.choose([Room(each.rates, self._most(each)) for each in sequences])
        some = [(index, k) for index, k in enumerate(ks) if k]
        if not some:
            return found, 0.0
        trees = self._tree is not None
        asks = [Ask(sequences[i].draft, sequences[i].tokens, k, sequences[i].sampler, trees) for i, k in some]
        started = self._clock.time()
        try:
            given: Any = await self._draft.propose(asks)
            if len(given) != len(some):
                raise ValueError(f"the draft returned {len(given)} proposals for {len(some)} sequences")
        except Exception as e:  # an exception of the user's draft: these sequences continue without it
            given = [e] * len(some)
        seconds = self._clock.time() - started
        for (index, k), proposal in zip(some, given, strict=True):
            try:
                if isinstance(proposal, Exception):
                    raise proposal
                found[index] = checked(proposal, k, self._vocabulary, trees=trees)
            except Exception as e:  # an exception of the draft, or its result is not a proposal
                self._without_draft(sequences[index], e)
        return found, seconds

    def _most(self, sequence: Sequence) -> int:
        """A pass gives one more token than are proposed, so the last one needs no proposal."""
        if not sequence.speculates:
            return 0
        k = self._policy.k if sequence.request.k is None else min(sequence.request.k, self._policy.k)
        return max(0, min(k, sequence.room - 1))

    def _without_draft(self, sequence: Sequence, error: Exception) -> None:
        self.figures.draft_failures += 1
        _log.warning("a draft failed; its sequence goes on without one: %s", printable(error, repr))
        if sequence.speculates:
            self._end_draft(sequence)

    def _end_draft(self, sequence: Sequence) -> None:
        assert self._draft is not None
        sequence.speculates = False
        try:
            self._draft.end(sequence.draft)
        except Exception:  # an exception of the user's draft, which is dropped
            _log.exception("end() of a draft failed")
        sequence.draft = None

    # -- keep ----------------------------------------------------------------------------------------------------------

    def _keep(self, sequence: Sequence, proposal: Proposal, logits: NDArray[Any], *, branches: bool) -> int:
        """Append the kept tokens of a proposal, and one more; returns the number of tokens.

        Args:
            sequence: Sequence that is continued.
            proposal: Proposal for the sequence.
            logits: Logits of the target, after its last token and each proposed one.
            branches: True if the pass was one over trees.
        """
        k = len(proposal.tokens)
        if sequence.request.adjust is not None:
            logits = _adjusted(sequence, proposal, logits)
        if not np.isfinite(logits.max(axis=1)).all():
            raise ValueError("the logits of a token have NaN or infinity as their largest value; check the model's")
        if proposal.parents is None:
            outcome = sequence.sampler.accept(proposal.tokens, proposal.probs, logits, len(sequence.tokens))
            path, token, deepest = list(range(outcome.accepted)), outcome.token, k
        else:
            follow = children(proposal.tokens, proposal.parents)
            path, token = sequence.sampler.accept_tree(follow, logits, len(sequence.tokens))
            deepest = _depth(proposal.parents)
        if branches:
            state: Any = sequence.state  # a TreeState
            state.keep([*range(sequence.pending), *(sequence.pending + node for node in path)])
        elif len(path) < k:
            sequence.state.rollback(k - len(path))
        sequence.pending = 1
        sequence.iterations += 1
        sequence.draft_tokens += k
        run = sequence.extend([*(proposal.tokens[node] for node in path), token])
        kept = min(len(path), len(run))
        sequence.accepted_tokens += kept
        self.figures.kept(k, deepest, kept, len(run))
        if k:
            self._policy.verified(sequence.rates, k, path)
        if sequence.entry.outlet is not None:
            for token in run:
                sequence.entry.outlet.put(token)
        if sequence.request.on_tokens is not None:
            sequence.request.on_tokens(run)
        return len(run)


def _runs(sequence: Sequence) -> bool:
    return sequence.entry.state is State.RUNNING


def _parents(pending: int, proposal: Proposal) -> list[int]:
    """Parents of the pending tokens of a text, and of a proposal after them."""
    k = len(proposal.tokens)
    behind = range(-1, k - 1) if proposal.parents is None else proposal.parents
    return [*range(-1, pending - 1), *(parent + pending for parent in behind)]


def _depth(parents: Any) -> int:
    """Tokens of the longest branch."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    return max(depths, default=0)


def _adjusted(sequence: Sequence, proposal: Proposal, logits: NDArray[Any]) -> NDArray[Any]:
    adjust = sequence.request.adjust
    assert adjust is not None
    parents = range(-1, len(proposal.tokens) - 1) if proposal.parents is None else proposal.parents
    texts = ([*sequence.tokens, *(proposal.tokens[n] for n in path_to(i - 1, parents))] for i in range(len(logits)))
    return np.stack([_checked(adjust(text, row), row) for text, row in zip(texts, logits, strict=True)])


def _checked(adjusted: Any, row: NDArray[Any]) -> NDArray[Any]:
    """What ``adjust`` returned for a row of logits."""
    found = np.asarray(adjusted)
    if found.shape != row.shape or found.dtype.kind not in "fiu":
        raise returned("adjust", adjusted, f"the logits of {len(row)} tokens")
    return found
