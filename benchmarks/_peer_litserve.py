"""The model of ``_peer_servers.py`` as LitServe has it: a class that its worker processes import."""

from typing import Any

import litserve
import numpy as np
from _peer_servers import Perceptron


class Api(litserve.LitAPI):
    def setup(self, device: Any) -> None:
        self.model = Perceptron()

    def decode_request(self, request: dict[str, int], **_: Any) -> int:
        return request["i"]

    def batch(self, inputs: Any) -> Any:
        return np.array(inputs)

    def predict(self, x: Any, **_: Any) -> Any:
        return self.model(x)

    def unbatch(self, output: Any) -> Any:
        return list(output)

    def encode_response(self, output: Any, **_: Any) -> Any:
        return {"y": output.tolist()}
