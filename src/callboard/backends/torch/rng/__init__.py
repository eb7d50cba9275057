"""Random numbers: the counter-based generators and the points of Sobol, on integers of 64 bits."""

from callboard.backends.torch.rng.library import TorchRng

__all__ = ["TorchRng"]
