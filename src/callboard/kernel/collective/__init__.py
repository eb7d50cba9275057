"""Operations of ``dev.collective``: collectives, one rank's part at a time.

:class:`callboard.World` submits them to all ranks; use it, not these, from an application that has all of the devices.
A rank makes an :class:`Offer`, gets those of all ranks (:class:`Join`), runs :class:`Run` and ends with :class:`Leave`.
"""

from callboard.kernel.collective.actor import CollectiveActor
from callboard.kernel.collective.messages import Join, Leave, Look, Offer, Run
from callboard.kernel.collective.part import Part, Step

__all__ = ["CollectiveActor", "Join", "Leave", "Look", "Offer", "Part", "Run", "Step"]
