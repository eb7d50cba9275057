"""``Consistency``: how far apart the workers of a parameter server may be; any other module only asks it."""

from dataclasses import dataclass

__all__ = ["Consistency", "Rule"]


class Consistency:
    """The rules by name. A worker's clock is the number of its pushes."""

    @dataclass(frozen=True)
    class Bsp:
        """Bulk synchronous: one push of each worker makes one update, and each waits for all."""

        @property
        def slack(self) -> int:
            return 1

    @dataclass(frozen=True)
    class Ssp:
        """Stale synchronous: a worker waits where its clock would be more than ``slack`` ahead of the slowest one.

        Attributes:
            slack: Largest difference of two clocks, at least 1.
        """

        slack: int = 3

        def __post_init__(self) -> None:
            if self.slack < 1:
                raise ValueError(f"Consistency.Ssp: slack is {self.slack}; it is at least 1 (Bsp keeps all in step)")

    @dataclass(frozen=True)
    class Asp:
        """Asynchronous: no worker waits.

        Attributes:
            scaled: The step size is divided by ``1 + staleness`` of the push.
        """

        scaled: bool = False

        @property
        def slack(self) -> None:
            return None


Rule = Consistency.Bsp | Consistency.Ssp | Consistency.Asp
