"""Who may talk to the server: the pages it served itself, and nobody else.

The server listens on this machine, but every page open in the browser can reach it there. Two
attacks follow, and each has its check:

- DNS rebinding: a foreign page makes its own name point to 127.0.0.1 and is then "same origin".
  The Host header still tells that name, so only this machine's names pass.
- Requests across origins (CSRF): a foreign page posts to 127.0.0.1. The browser says where from in
  Origin, which must be the Host itself; for reading, Sec-Fetch-Site must not say cross-site.

Every response carries a Content-Security-Policy that allows nothing but this server.
"""

import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS = {"GET", "HEAD"}

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """ASGI middleware that refuses with 403 what no page of this server would ask."""

    def __init__(self, app: ASGIApp, *, host: str, allow_hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", host.lower(), *(name.lower() for name in allow_hosts)}
        # A name can be made to point anywhere, a number cannot: numbers are safe.
        self._any_address = _is_wildcard(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        reason = self._objection(scope["method"], scope["path"], Headers(scope=scope))
        if reason is None:
            await self._app(scope, receive, send_with_headers)
        else:
            refusal = JSONResponse({"error": reason}, status_code=403)
            await refusal(scope, receive, send_with_headers)

    def _objection(self, method: str, path: str, headers: Headers) -> str | None:
        """Why the request is refused, None when it is not."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(_name_of(hosts[0])):
            return (
                f"{', '.join(hosts) or 'no Host'} is no name of this server; if it should be, "
                "start it with --allow-host."
            )
        origins = headers.getlist("origin")
        if origins:
            if len(origins) > 1 or not _same_origin(origins[0], hosts[0]):
                return "this request comes from another page."
        elif method not in SAFE_METHODS:
            return "this request does not say where it comes from (no Origin header)."
        # A link to the page itself may stand anywhere; what the page asks for comes from it.
        if path != "/" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "this request comes from another page."
        return None

    def _is_ours(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._any_address or address.is_loopback


def _name_of(host: str) -> str:
    """The name in a Host header, without port and brackets, in lower case; "" if it is no name."""
    parts = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::\d*)?", host)
    return "" if parts is None else (parts[1] or parts[2] or "").lower()


def _same_origin(origin: str, host: str) -> bool:
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == host.lower()


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
