"""A folder served over HTTP on this machine."""

from __future__ import annotations

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Answers without a line on standard error for each request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@contextlib.contextmanager
def serving(root: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine; gives the URL, without a slash at its end."""
    handler = functools.partial(QuietHandler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
