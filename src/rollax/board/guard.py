"""Who may ask: pages of the board itself, and nobody else's."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OURS = ("same-origin", "none")  # what a browser says of a request by the page itself, or by a person


class Guard:
    """Answers 403 to requests that another website may have caused.

    A website that lets its own name lead to this machine sends that name as the host; one that sends a form or a
    script's request here has its own origin.
    """

    def __init__(self, app: Any, port: int):
        self.app = app
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        if port == 80:
            self.hosts |= {"127.0.0.1", "localhost"}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        if problem := self.problem(headers):
            await PlainTextResponse(problem, 403, HEADERS)(scope, receive, send)
            return

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, sent)

    def problem(self, headers: Headers) -> str:
        """Why a request is refused; nothing where it is not."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return "this board answers requests to 127.0.0.1 and localhost alone"
        origins = headers.getlist("origin")
        if origins and origins != [f"http://{hosts[0].lower()}"]:
            return "this board answers its own page alone"
        if headers.get("sec-fetch-site", "none") not in OURS:
            return "this board answers its own page alone; type its address instead of following a link"
        return ""
