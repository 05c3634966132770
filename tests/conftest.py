"""Shared by all tests: the probes on the path, compiled programs kept between runs, and nobody who hurries them."""

from __future__ import annotations

import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most programs of the tests run for a moment: compiling them is what takes the time.
FLAGS = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if version("jax").startswith("0.10."):  # another version may not know this one, and refuses to start then
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))

# No test says how fast the machine must be: neither how long an example takes, nor how soon others' processes start.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("patient")
for name in (
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S",
    "RAY_gcs_server_request_timeout_seconds",
    "RAY_worker_register_timeout_seconds",
    "WANDB__SERVICE_WAIT",
):
    os.environ.setdefault(name, "600")

from browsing import browser, page  # noqa: E402, F401 - from beside this file
from cases import THOROUGH  # noqa: E402

# Looking for garbage among thousands of compiled programs takes 5 to 8 % of the time.
gc.set_threshold(100_000, 50, 1_000)


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_configure(config):
    config.addinivalue_line("markers", "thorough: repeats a test for more cases; ROLLAX_THOROUGH=1 runs it")


def pytest_collection_modifyitems(items):
    if THOROUGH:
        return
    skip = pytest.mark.skip(reason="more cases of a test that runs; ROLLAX_THOROUGH=1 runs them all")
    for item in items:
        if "thorough" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def compile_cache():
    import jax

    from rollax.programs.machine import use_compile_cache

    use_compile_cache()
    # Started here, before a command that a test calls could give each core a device of its own.
    assert jax.device_count() >= 1
