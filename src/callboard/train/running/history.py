"""``History``: the steps of a run, to look at."""

from collections.abc import Sequence
from typing import NamedTuple

from callboard.train.stats import Evaluation, StepStats

__all__ = ["History"]

LEVELS = "▁▂▃▄▅▆▇█"
WIDTH = 60


class History(NamedTuple):
    """What :meth:`.DataParallelTrainer.fit` has done.

    Attributes:
        steps: The figures of each step, in order.
        evaluations: Those of the validation data, in order.
        ended: Why ``patience`` ended it; empty: it did not.
    """

    steps: Sequence[StepStats]
    evaluations: Sequence[Evaluation] = ()
    ended: str = ""

    @property
    def losses(self) -> list[float]:
        """Loss of each step."""
        return [stats.loss for stats in self.steps]

    def curve(self, width: int = WIDTH) -> str:
        """The losses as a line of text, each character the mean of some steps: ``1.92 ██▆▅▃▂▁▁ 0.08``."""
        points = self._points(width)
        if not points:
            return "no steps"
        low, high = min(points), max(points)
        scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
        return f"{points[0]:.4g} {''.join(LEVELS[round((one - low) * scale)] for one in points)} {points[-1]:.4g}"

    def plot(self, width: int = WIDTH, height: int = 12) -> str:
        """The losses as a diagram of text, with the numbers of the steps below."""
        points = self._points(width)
        if not points:
            return "no steps"
        low, high = min(points), max(points)
        scale = (height - 1) / (high - low) if high > low else 0.0
        level = [round((one - low) * scale) for one in points]
        rows = ["".join("•" if at == row else " " for at in level) for row in reversed(range(height))]
        labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
        lines = [f"{label:>10} ┤{row.rstrip()}" for label, row in zip(labels, rows, strict=True)]
        first, last = str(self.steps[0].step), str(self.steps[-1].step)
        return "\n".join([*lines, f"{'step':>10}  {first}{last:>{max(1, len(points) - len(first))}}"])

    def _points(self, width: int) -> list[float]:
        losses = [loss for loss in self.losses if abs(loss) < float("inf")]
        size = max(1, -(-len(losses) // width))
        return [sum(losses[at : at + size]) / len(losses[at : at + size]) for at in range(0, len(losses), size)]

    def __str__(self) -> str:
        backs = [f"step {stats.step} undid {stats.undone}" for stats in self.steps if stats.undone]
        rolled = f"; rolled back: {', '.join(backs)}" if backs else ""
        last = (
            f"; validation after step {self.evaluations[-1].step}: {self.evaluations[-1]}" if self.evaluations else ""
        )
        return (
            f"{len(self.steps)} steps: {self.curve()}{rolled}{last}{f'; ended by {self.ended}' if self.ended else ''}"
        )

    def _repr_html_(self) -> str:
        points = self._points(300)
        if len(points) < 2:
            return f"<p>{self}</p>"
        low, high = min(points), max(points)
        span = (high - low) or 1.0
        line = " ".join(
            f"{at * 600 / (len(points) - 1):.1f},{150 - (one - low) * 140 / span - 5:.1f}"
            for at, one in enumerate(points)
        )
        return (
            f'<svg viewBox="0 0 600 170" width="600" role="img" aria-label="loss of {len(self.steps)} steps">'
            f'<polyline points="{line}" fill="none" stroke="#2a78d6" stroke-width="1.5"/>'
            f'<text x="0" y="166" font-size="12" fill="gray">loss {points[0]:.4g} to {points[-1]:.4g}, '
            f"{len(self.steps)} steps</text></svg>"
        )
