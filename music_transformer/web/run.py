"""Start the server, say where it is, and end it properly."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from music_transformer.errors import ConfigError

#: How long a browser may take to send the head of a request; a connection without one is closed.
HEAD_SECONDS = 20.0


class _Protocol(H11Protocol):
    """HTTP, where a request that is half sent does not stay for ever."""

    _waiting_since: float | None = None  # for a whole head; None while a request is answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._close_if_late()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self.loop.time()

    def _close_if_late(self) -> None:
        since = self._waiting_since
        if since is not None and self.loop.time() - since >= HEAD_SECONDS:
            self.transport.close()
        if not self.transport.is_closing():
            self.loop.call_later(HEAD_SECONDS / 4, self._close_if_late)


class Server(uvicorn.Server):
    """A uvicorn server that first closes the channels, which would keep it from ending."""

    def __init__(self, app: Starlette) -> None:
        self._studio = app.state.studio
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                log_level="warning",
                access_log=False,
                ws="none",
                server_header=False,
                # A browser that holds its connection open must not hold the server.
                timeout_graceful_shutdown=3,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._studio.end_channels()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {reason.lower()}; try another --port."
        ) from error


def url_of(listener: socket.socket) -> str:
    """The address to type into a browser on this machine."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def is_local(listener: socket.socket) -> bool:
    """Whether only this machine can reach the socket."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def serve(app: Starlette, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Call `ready` once the socket listens, and serve until Ctrl-C or another signal."""
    with listener:
        ready()
        try:
            Server(app).run(sockets=[listener])
        except KeyboardInterrupt:
            pass  # uvicorn has ended in good order and passes the signal on
        finally:
            app.state.studio.close()  # a second Ctrl-C skips what the server would have called
