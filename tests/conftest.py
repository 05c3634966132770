"""Shared by all tests: the probes on the path, and compiled programs kept between runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("JAX_PLATFORMS", "cpu")


@pytest.fixture(scope="session", autouse=True)
def compile_cache():
    from rollax.training.run import use_compile_cache

    use_compile_cache()
