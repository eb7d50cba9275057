"""Operations of ``dev.collective``: the part of one rank in a collective.

:class:`callboard.World` submits these ops to all ranks; an application that has all of the devices uses it instead of
these ops. A rank makes an :class:`Offer`, receives the offers of all ranks (:class:`Join`), executes :class:`Run`, and
ends with :class:`Leave`.
"""

from callboard.kernel.collective.actor import *
from callboard.kernel.collective.messages import *
from callboard.kernel.collective.part import Part as Part
from callboard.kernel.collective.part import Step as Step
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
