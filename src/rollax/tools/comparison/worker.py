"""One mode in a process of its own: memory, threads and devices are then nobody else's.

It reads one JSON object a line from its input, `{"call": ..., ...}`, and answers each with one line.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

from rollax.experiment.experiment import from_json
from rollax.tools.processes import answers


def build(mode: str, experiment: dict[str, Any], device: str) -> Any:
    """The mode, ready to run."""
    made = from_json(experiment)
    if mode == "pytorch":
        import torch

        from rollax.tools.comparison.torch_mode import TorchMode

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return TorchMode(made, device)
    from rollax.tools.comparison.jax_modes import JaxParallel, JaxSequential

    return {"jax_sequential": JaxSequential, "jax_parallel": JaxParallel}[mode](made)


def device_name(mode: str, device: str) -> str:
    if mode != "pytorch":
        import jax

        return jax.devices()[0].device_kind
    if device == "cpu":
        return "cpu"
    import torch

    return torch.cuda.get_device_name()


def peak_bytes(mode: str, device: str) -> dict[str, int]:
    """The most memory that the process had, and that it had on an accelerator."""
    found = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if mode == "pytorch" and device != "cpu":
        import torch

        found["device"] = torch.cuda.max_memory_allocated()
    elif mode != "pytorch":
        import jax

        statistics = jax.devices()[0].memory_stats() or {}
        if "peak_bytes_in_use" in statistics:
            found["device"] = statistics["peak_bytes_in_use"]
    return found


def answer(made: Any, mode: str, device: str, call: str, options: dict[str, Any]) -> Any:
    if call == "run":
        began = time.perf_counter()
        returns = made.epochs(options["epochs"], options["epsilon"])
        return {"seconds": time.perf_counter() - began, "returns": returns, "load": os.getloadavg()[0]}
    if call == "reset":
        return made.reset(options["seed"])
    if call == "greedy":
        return made.greedy_returns(options["epochs"], options["seed"])
    if call == "parts":
        return made.parts()
    assert call == "facts"
    return {
        "compile_seconds": made.compile_seconds,
        "peak_bytes": peak_bytes(mode, device),
        "device": device_name(mode, device),
    }


def main() -> None:
    out = answers()
    first = json.loads(sys.stdin.readline())
    mode, device = first["mode"], first["device"]
    made = build(mode, first["experiment"], device)
    print(json.dumps("ready"), file=out)
    for line in sys.stdin:
        options = json.loads(line)
        print(json.dumps(answer(made, mode, device, options.pop("call"), options)), file=out)


if __name__ == "__main__":
    main()
