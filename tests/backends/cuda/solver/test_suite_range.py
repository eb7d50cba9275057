"""The conformance suite of the ends of the range on the stand-ins: scaling by the kernels, compiled for the CPU."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_solver_range import *  # noqa: F403 - its tests, with this folder's session
