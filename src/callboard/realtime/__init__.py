"""Simulations that run step by step on a device, and the messages that they take."""

from callboard.realtime.base.messages import Reset as Reset
from callboard.realtime.base.messages import Snapshot as Snapshot
from callboard.realtime.base.messages import Step as Step
from callboard.realtime.base.messages import UpdateConfig as UpdateConfig
