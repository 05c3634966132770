"""The command `board`."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rollax.commands.flags import Trusting, parse
from rollax.errors import ConfigError, missing
from rollax.settings import Limit, setting


@dataclass(frozen=True)
class BoardOptions(Trusting):
    folder: Annotated[str, tyro.conf.Positional] = setting("runs", help="The folder in which the runs are.")
    port: int = setting(8790, "Port of the page on this machine; 0 takes any that is free.", limit=Limit(0, 65_535))
    open: bool = setting(False, "Open the page in the browser.")


def board_command(arguments: list[str]) -> int:
    """`rollax board [DIR]`."""
    description = "Runs live in the browser: curves, status, settings, films, and the agent playing step by step."
    options = parse(BoardOptions, arguments, "rollax board", description)
    if problems := missing("starlette", "rollax board") or missing("uvicorn", "rollax board"):
        raise ConfigError(problems)
    root = Path(options.folder)
    if not root.is_dir():
        raise ConfigError(f"folder={options.folder} is no folder; name the one in which your runs are")
    from rollax.board.server import serve
    from rollax.programs.cluster import use_device

    def say(address: str) -> None:
        print(f"{address} shows the runs in {root} (Ctrl-C ends it)", flush=True)
        if options.open:
            webbrowser.open(address)

    use_device("cpu", check=False)  # an accelerator belongs to what trains
    serve(root, options.port, trust=options.trust, say=say)
    return 0
