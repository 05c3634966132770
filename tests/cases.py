"""Which cases of the tests run."""

from __future__ import annotations

import os

# Further cases of tests that run anyway: `.ci/run` switches them on.
THOROUGH = os.environ.get("ROLLAX_THOROUGH", "0") != "0"
