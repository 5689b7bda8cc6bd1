"""A server of buckets of which one request breaks, to see what `cairn.store.buckets` does about that."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading
import urllib.parse
from collections.abc import Callable, Iterator

from helpers.faults import Fault, Plan

_ANSWERS = {
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.FAILED: (500, "InternalError"),
    Fault.BUSY: (503, "SlowDown"),
    Fault.REFUSED: (412, "PreconditionFailed"),
}


class FaultyServer(http.server.ThreadingHTTPServer):
    """A proxy in front of a server of buckets, of which a plan breaks one request.

    Attributes:
        backend: host and port of the server.
        plan: which request breaks; a different one may be put in its place at any time.
        dropped: headers that do not get through, in lower case.
        away: it does not answer any more.
        refuses: the code with which it refuses all requests, such as `ExpiredToken`; empty for none.
        before: called with the number of each request before it is passed on; a test may kill something.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.backend = urllib.parse.urlsplit(endpoint).netloc
        self.plan = Plan()
        self.dropped: set[str] = set()
        self.away = False
        self.refuses = ""
        self.before: Callable[[int], None] = lambda _number: None
        self.gave_up = threading.Event()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that was killed, or has given up, is what tests are about."""


@contextlib.contextmanager
def faulty_server(endpoint: str) -> Iterator[FaultyServer]:
    """A proxy in front of a server, until the block ends."""
    with FaultyServer(endpoint) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield server
        finally:
            server.gave_up.set()
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # see `helpers.buckets`
    server: FaultyServer

    def do_GET(self) -> None:
        """Pass a request on, unless the plan has it break."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.plan.next(self.command, self.path)
        self.server.before(len(self.server.plan.requests))
        conditional = {"if-match", "if-none-match"} & {name.lower() for name in self.headers}
        if self.server.away:
            self.close_connection = True
        elif self.server.refuses:
            self._refuse(400, self.server.refuses)
        elif fault is Fault.TIMEOUT:
            self.server.gave_up.wait(30)
            self.close_connection = True
        elif fault in _ANSWERS and (conditional or fault in (Fault.FAILED, Fault.BUSY)):
            self._refuse(*_ANSWERS[fault])
        else:
            self._pass_on(body, fault)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - where the class above looks

    def _refuse(self, status: int, code: str) -> None:
        said = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
        self._reply(status, [("Content-Type", "application/xml")], said.encode())

    def _pass_on(self, body: bytes, fault: Fault | None) -> None:
        line = http.client.HTTPConnection(self.server.backend, timeout=60)
        with contextlib.closing(line):
            # The host too as it came: it is signed.
            line.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"connection", "expect", *self.server.dropped}:
                    line.putheader(name, value)
            line.endheaders(body)
            answer = line.getresponse()
            data = answer.read()
            if fault in (Fault.LOST, Fault.LOST_AND_REPEATED):
                self.close_connection = True
                return
            kept = [(n, v) for n, v in answer.getheaders() if n.lower() not in _OF_A_HOP]
            if self.command == "HEAD":
                kept.append(("Content-Length", answer.getheader("Content-Length", "0")))
            self._reply(answer.status, kept, data, truncated=fault is Fault.TRUNCATED)

    def _reply(
        self, status: int, headers: list[tuple[str, str]], data: bytes, *, truncated: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD" and status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if truncated else data)
        if truncated and data:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called in the class above
        """Say nothing."""


_OF_A_HOP = {"connection", "content-length", "transfer-encoding", "date", "server"}
