"""A server in front of another: a proxy for every host, or one that leaves a header out."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_OWN = ("content-length", "transfer-encoding", "connection", "date", "server")


@contextlib.contextmanager
def proxy(endpoint: str, *, without: str = "") -> Iterator[str]:
    """Hand every request on to a server, but for the header `without`; gives the address."""
    server = urlsplit(endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {key: value for key, value in self.headers.items() if key.lower() != without.lower()}
            # What is asked of a proxy has the whole address; the host is in a header, too.
            path = self.path if self.path.startswith("/") else "/" + self.path.split("/", 3)[3]
            connection = http.client.HTTPConnection(server, timeout=30)
            connection.request(self.command, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in _OWN or (key.lower() == "date"):
                    self.send_header(key, value)
            length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(data)
            connection.close()

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward  # noqa: N815 - names of http.server

        def log_message(self, *_words: object) -> None:
            """Nothing: the tests look at what comes of it."""

    here = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=here.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{here.server_port}"
    finally:
        here.shutdown()
        here.server_close()
