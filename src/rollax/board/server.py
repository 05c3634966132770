"""The board as a server on this machine: its page, what happens to the runs, and what is shown of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

import rollax
from rollax.board import comparing
from rollax.board.guard import Guard
from rollax.board.rows import shown
from rollax.board.thinking import Games
from rollax.board.watching import Changes, Known, Watch
from rollax.errors import ConfigError, RollaxError, told
from rollax.reports.films import watch as record_film
from rollax.reports.page import FILMS, own_file
from rollax.reports.runs import Run
from rollax.runs.reader import MOST_TABLE_BYTES, check_shape, parsed, read_bytes

HOST = "127.0.0.1"
NICENESS = 19
PAUSE_SECONDS = 1.0  # between two looks at the folders, while somebody watches
BEAT_SECONDS = 15.0  # after which a browser that has nothing to be told is told that
KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
OWN = ("board.js", "list.js", "thinking.js", "board.css")
REPORTS = ("page.js", "page.css")
MOST_ASKED = 200_000  # bytes of a request


@dataclass
class Board:
    """What a server shows: a folder of runs, and games that a browser has begun."""

    root: Path
    trust: bool = False
    watch: Watch = field(init=False)
    readings: comparing.Readings = field(default_factory=comparing.Readings)
    games: Games = field(init=False)
    listeners: set[asyncio.Queue[str]] = field(default_factory=set)
    watched: asyncio.Event = field(default_factory=asyncio.Event)  # somebody listens
    complete: bool = False  # all folders have been read once
    told: bool = False  # and that has been told
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.watch = Watch(self.root)
        self.games = Games(self.trust)

    # -- what happens to the runs

    async def watch_on(self) -> None:
        """Looks at the folders for ever, all of them once and then as long as somebody watches; tells what changes."""
        while True:
            changes = await to_thread.run_sync(self.watch.look)
            self.complete |= changes.whole
            if changes.changed or changes.gone or (changes.whole and not self.told):
                self.told = changes.whole
                self.tell(self.message(changes))
            if changes.whole:
                await asyncio.sleep(PAUSE_SECONDS)
                await self.watched.wait()

    def tell(self, message: str) -> None:
        for listener in self.listeners:
            listener.put_nowait(message)

    def message(self, changes: Changes) -> str:
        """Changes for the page's script."""
        rows = {key: self.plain(known) for key in changes.changed if (known := self.watch.runs.get(key))}
        return json.dumps({"rows": rows, "gone": changes.gone, "whole": changes.whole}, allow_nan=False)

    def plain(self, known: Known) -> dict[str, Any]:
        return known.row._asdict() | {"version": known.version}

    async def events(self, request: Request) -> Response:
        """All rows, and from then on those that change."""
        queue: asyncio.Queue[str] = asyncio.Queue()

        async def stream() -> AsyncIterator[str]:
            self.listeners.add(queue)
            self.watched.set()
            try:
                yield f"data: {self.message(Changes(list(self.watch.runs), [], self.complete))}\n\n"
                while True:
                    try:
                        yield f"data: {await asyncio.wait_for(queue.get(), BEAT_SECONDS)}\n\n"
                    except TimeoutError:
                        yield ": nothing has changed\n\n"
            finally:
                self.listeners.discard(queue)
                if not self.listeners:
                    self.watched.clear()

        return StreamingResponse(stream(), media_type="text/event-stream")

    # -- what is shown of them

    def chosen(self, keys: list[str]) -> dict[str, Known]:
        """The runs of these keys that are there."""
        return {key: self.watch.runs[key] for key in keys if key in self.watch.runs}

    async def read(self, request: Request, show: Callable[[list[Run]], Any]) -> Response:
        """What is shown of the runs that a request names, and what is wrong with them."""
        chosen = self.chosen(request.query_params.getlist("run"))

        def work() -> dict[str, Any]:
            runs, problems = self.readings.all(chosen)
            return {"problems": problems, "shown": show(runs)}

        async with self.reading:  # one after the other: a run that trains beside it has the cores
            return as_json(await to_thread.run_sync(work))

    async def curves(self, request: Request) -> Response:
        kind = request.query_params.get("kind", "returns")
        return await self.read(request, partial(comparing.curves, kind=kind))

    async def tables(self, request: Request) -> Response:
        return await self.read(request, comparing.tables)

    async def console(self, request: Request) -> Response:
        return await self.read(request, lambda runs: {run.name: comparing.console_of(run) for run in runs[:1]})

    # -- films

    async def film(self, request: Request) -> Response:
        """A film that lies in a run folder, under one of its two names."""
        known, name = self.watch.runs.get(request.path_params["key"]), request.path_params["name"]
        if known is None or name not in known.row.films:
            return PlainTextResponse("there is no such film", 404)
        path = known.path / name
        content = await to_thread.run_sync(partial(read_bytes, path, most=MOST_TABLE_BYTES))
        return Response(content, media_type=FILMS[path.suffix])

    async def record(self, request: Request) -> Response:
        """Lets a run's agent play an episode, and writes its film into the run folder."""
        asked = await question(request, {"run": str, "member": int})
        known = self.watch.runs.get(asked["run"])
        if known is None:
            return PlainTextResponse("the run is no longer there", 404)

        def work() -> str:
            self.games.demand_trust(known.path)
            return record_film(known.path, member=asked["member"], trust=self.trust)[0].name

        return as_json({"film": await to_thread.run_sync(work)})

    # -- games

    async def game(self, request: Request) -> Response:
        """Begins a game of a run's agent, or goes on with one: what is seen then, and what the agent thinks of it."""
        asked = await question(
            request, {"game": str, "run": str, "member": int, "best": bool, "seed": int, "action": (int, type(None))}
        )
        known = self.watch.runs.get(asked["run"])
        if known is None:
            return PlainTextResponse("the run is no longer there", 404)
        return as_json(await to_thread.run_sync(partial(self.games.answer, known.path, asked)))


async def question(request: Request, shape: dict[str, Any]) -> dict[str, Any]:
    """What a page has sent: an object with these names, each of that type."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MOST_ASKED:
            raise RollaxError("the request is too long")
    data = parsed(content.decode("utf-8", "replace"), "the request")
    check_shape(data, shape, "the request")
    return data


def as_json(data: Any) -> Response:
    """Plain data as an answer; file names may hold what is no text, and are escaped."""
    return Response(json.dumps(data, allow_nan=False), media_type="application/json")


def own(name: str) -> Response:
    """A file of the page."""
    text = own_file(name) if name in REPORTS else files("rollax.board").joinpath(name).read_text(encoding="utf-8")
    return Response(text, media_type=KINDS[Path(name).suffix])


def page(board: Board) -> str:
    """The page itself."""
    text = files("rollax.board").joinpath("page.html").read_text(encoding="utf-8")
    return text.replace("{{folder}}", escape(shown(str(board.root)))).replace("{{version}}", rollax.__version__)


def import_scipy() -> None:
    """What the first figure would have to wait for."""
    import scipy.special  # noqa: F401


async def failed(request: Request, error: Exception) -> Response:
    """What cannot be done, in a line."""
    line = str(error) if isinstance(error, RollaxError) else told(error)
    return PlainTextResponse(shown(line, 2_000), 422)


def app_of(root: Path, port: int, *, trust: bool = False) -> Any:
    """The board of a folder as an application of ASGI, for requests to that port."""

    @contextlib.asynccontextmanager
    async def running(_: Starlette) -> AsyncGenerator[None]:
        watching = asyncio.create_task(board.watch_on())
        threading.Thread(target=import_scipy, daemon=True).start()
        try:
            yield
        finally:
            watching.cancel()
            board.games.close()

    board = Board(root, trust)

    def file(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return own(name)

        return answer

    async def home(request: Request) -> Response:
        return Response(page(board), media_type="text/html")

    routes = [
        Route("/", home),
        *(Route(f"/{name}", file(name)) for name in (*OWN, *REPORTS)),
        Route("/events", board.events),
        Route("/curves", board.curves),
        Route("/tables", board.tables),
        Route("/console", board.console),
        Route("/film/{key}/{name}", board.film),
        Route("/film", board.record, methods=["POST"]),
        Route("/game", board.game, methods=["POST"]),
    ]
    starlette = Starlette(routes=routes, lifespan=running, exception_handlers={RollaxError: failed, Exception: failed})
    return Guard(starlette, port)


def serve(root: Path, port: int, *, trust: bool = False, say: Callable[[str], None] = print) -> None:
    """Shows the board of a folder on this machine until Ctrl-C; `say` is told its address.

    The process is as patient as the system lets it be: a run that trains beside it has the cores.
    """
    with listening(port) as place:
        with contextlib.suppress(OSError, AttributeError):
            os.nice(NICENESS)
        say(f"http://{HOST}:{place.getsockname()[1]}/")
        with contextlib.suppress(KeyboardInterrupt):
            server_at(place, root, trust=trust).run(sockets=[place])


def listening(port: int) -> socket.socket:
    """Where a browser of this machine, and nobody else, can ask; port 0 is any that is free.  Raises ConfigError."""
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((HOST, port))
        place.listen()  # who comes before the server is ready waits for it
    except OSError as error:
        place.close()
        raise ConfigError(f"port={port} is not free ({error.strerror}); name another, or 0 for any") from error
    return place


def server_at(place: socket.socket, root: Path, *, trust: bool = False) -> uvicorn.Server:
    """The server of a folder's board, to be run there."""
    app = app_of(root, place.getsockname()[1], trust=trust)
    quiet = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, timeout_graceful_shutdown=1
    )
    return uvicorn.Server(quiet)
