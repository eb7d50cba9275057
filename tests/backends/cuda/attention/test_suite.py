"""The conformance suite on our own kernels, compiled by g++ and run on host memory, thread by thread.

Minutes, so in a run of all tests; ``test_kernels.py`` has smaller calls. f16 is left out: its conversions are
instructions of a GPU.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_attention import (  # noqa: F401 - its tests, with this folder's session
    test_every_feature_with_every_other,
    test_lengths_that_do_not_fit_fail_the_call,
    test_packed_sequences_are_those_apart,
    test_views_and_given_outputs,
)
from test_attention_paged import (  # noqa: F401 - likewise
    test_what_does_not_exist_fails_the_call,
    test_what_is_appended_and_copied,
)

pytestmark = pytest.mark.timeout(600)
