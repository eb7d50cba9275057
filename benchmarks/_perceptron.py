"""The perceptron of ``_peer_servers.py`` as a resident actor."""

from typing import Any

import numpy as np
from _peer_servers import Perceptron

import callboard as cb

__all__ = ["ResidentPerceptron"]


class ResidentPerceptron(cb.ResidentActor):
    """Its process ends at a negative number, as those of the peers do."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.model = Perceptron()

    def rows(self, batch: list[Any]) -> list[Any]:
        return list(self.model(np.stack(batch)))
