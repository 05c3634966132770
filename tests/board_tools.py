"""A board that answers requests on this machine, and requests to it as any program could send them."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from process_tools import HANGING

pytest.importorskip("starlette", reason="the board's server: the extra `board`")

from rollax.board.server import HOST, listening, server_at


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


class Address(NamedTuple):
    """Where a board answers."""

    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def ask(self, path: str, sent: Any = None, **headers: str) -> Answer:
        """What is answered to a request, whose path is sent as it is written here."""
        with closing(http.client.HTTPConnection(HOST, self.port, timeout=HANGING)) as connection:
            connection.putrequest("GET" if sent is None else "POST", path, skip_host="Host" in headers)
            body = b"" if sent is None else json.dumps(sent).encode()
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            if sent is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode("utf-8", "replace"))

    def rows(self) -> dict[str, Any]:
        """All rows by their keys, once every folder has been read."""
        return self.listen(lambda rows, whole: whole)

    def listen(self, until: Callable[[dict[str, Any], bool], bool]) -> dict[str, Any]:
        """The rows as the events tell them, once they are so."""
        rows: dict[str, Any] = {}
        whole = False
        with closing(http.client.HTTPConnection(HOST, self.port, timeout=HANGING)) as connection:
            connection.request("GET", "/events")
            answer = connection.getresponse()
            while not until(rows, whole):
                line = answer.readline().decode()
                assert line, "the server has ended the events"
                if line.startswith("data: "):
                    message = json.loads(line.removeprefix("data: "))
                    whole = whole or message["whole"]
                    rows |= message["rows"]
                    rows = {key: row for key, row in rows.items() if key not in message["gone"]}
        return rows

    def key(self, name: str) -> str:
        """What the browser calls the run of that name."""
        return next(key for key, row in self.rows().items() if row["name"] == name)

    def shown(self, what: str, *names: str, **more: str) -> dict[str, Any]:
        """What is shown of these runs."""
        query = urlencode([*(("run", self.key(name)) for name in names), *more.items()])
        answer = self.ask(f"/{what}?{query}")
        assert answer.status == 200, answer.text
        return answer.data


@contextmanager
def board(root: Path, *, trust: bool = False):
    """The board of a folder, in a thread of its own."""
    with listening(0) as place:
        server = server_at(place, root, trust=trust)
        thread = threading.Thread(target=server.run, args=([place],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server has ended"
            time.sleep(0.01)
        try:
            yield Address(place.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(HANGING)


def game(key: str, **more: Any) -> dict[str, Any]:
    """What the page asks of a game."""
    return {"game": "", "run": key, "member": 0, "best": False, "seed": 0, "action": None} | more
