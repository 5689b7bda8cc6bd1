"""Serve a store over HTTP: to try an index, for the gate, and within a small network.

Any static web server can do the same for releases; this one adds what pip and uv make use of: JSON by
`Accept`, parts of files, compressed pages, and answers of a few bytes where nothing has changed.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Iterator

import msgspec

from cairn.errors import SystemFailureError, UsageError
from cairn.store.protocol import Store

_BACKLOG = 1024  # clients that the system keeps waiting until we take them, unless its own limit is lower


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A running server.

    Attributes:
        url: its address, without a slash at the end.
        port: where it listens.
    """

    url: str
    port: int


@contextlib.contextmanager
def serving(store: Store, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """Serve a store until the block ends.

    Args:
        store: what to serve; of it, only what has a key of ours is given.
        host: the address to listen on.
        port: where to listen; 0 takes any that is free.

    Raises:
        UsageError: there is no such port.
        SystemFailureError: the port is taken, or the address is not ours.
    """
    # aiohttp takes 0.2 s of CPU time, and `cairn ci run` rarely comes to serve something.
    import asyncio  # noqa: PLC0415

    from cairn.release import serve_http  # noqa: PLC0415

    listener = _listen(host, port)  # from here on the system takes clients, and keeps them until we do
    bound = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        stop = asyncio.Event()
        work = serve_http.serve(store, listener, stop, backlog=_BACKLOG)
        thread = threading.Thread(target=loop.run_until_complete, args=(work,), daemon=True)
        thread.start()
        try:
            yield Server(url=f"http://{shown}:{bound}", port=bound)
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:
        raise UsageError(f"{port} is not a valid port", tip="choose one from 0 to 65535")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SystemFailureError(
                f"port {port} of {host} is in use",
                tip="choose a different one with --port, or --port 0 for any free port",
            ) from error
        raise SystemFailureError(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            tip="ports below 1024 are for root: take --port 8383"
            if error.errno == errno.EACCES
            else "name an address of this machine with --host, such as 127.0.0.1, or 0.0.0.0 for all",
        ) from error
    except (TypeError, UnicodeError) as error:  # what socket says of a name with an empty or long part
        raise SystemFailureError(
            f"cannot listen on {host}: it is not a valid name of a host",
            tip="name an address of this machine with --host, such as 127.0.0.1",
        ) from error
