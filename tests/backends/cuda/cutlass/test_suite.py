"""The conformance suite on the stand-ins: generated epilogues, groups, patches."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_cutlass import *  # noqa: F403 - its tests, with this folder's session
