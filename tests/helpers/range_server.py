"""A web server that sends parts of files (RFC 9110, section 14), and can do so wrongly."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import http.server
import ipaddress
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helpers.serving import QuietHandler

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass
class Answer:
    """What the server is about to send; a fault changes it."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class RangeServer:
    """A server and what happened to it.

    Attributes:
        url: its address, without a slash at its end.
        requests: the path and the range of each request.
        headers: those of the last one.
        sent: bytes of bodies.
        ranges: whether it knows ranges.
        suffixes: whether it knows those that count from the end.
        fault: changes each answer, by the number of the request, from 1.
    """

    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    ranges: bool = True
    suffixes: bool = True
    fault: Callable[[int, Answer], None] = lambda _number, _answer: None


def part_of(size: int, span: str) -> tuple[int, int]:
    """Where the part of a file begins and ends that the value of a `Range` header names."""
    match = _RANGE.fullmatch(span)
    assert match, span
    if not match[1]:
        return max(size - int(match[2]), 0), size
    return int(match[1]), min(int(match[2]) + 1, size) if match[2] else size


class _Handler(QuietHandler):
    state: RangeServer

    def do_GET(self) -> None:  # noqa: N802 - where the base looks
        path = Path(self.translate_path(self.path))
        span = self.headers.get("Range", "")
        self.state.requests.append((self.path, span))
        self.state.headers = dict(self.headers)
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        begin, stop, status = 0, size, 200
        if span.startswith("bytes=-") and self.state.ranges and not self.state.suffixes:
            self.send_error(501)
            return
        if span and self.state.ranges:
            begin, stop = part_of(size, span)
            status = 206 if begin < stop else 416
        with path.open("rb") as file:
            file.seek(begin)
            body = file.read(stop - begin)
        tag = hashlib.sha256(f"{path.stat().st_mtime_ns} {size}".encode()).hexdigest()[:16]
        headers = {"Content-Length": str(len(body)), "ETag": f'"{tag}"'}
        if status == 206:
            headers["Content-Range"] = f"bytes {begin}-{stop - 1}/{size}"
        answer = Answer(status, headers, body)
        if self.headers.get("If-Range", answer.headers["ETag"]) != answer.headers["ETag"]:
            answer = Answer(200, {"Content-Length": str(size), "ETag": headers["ETag"]}, path.read_bytes())
        self.state.fault(len(self.state.requests), answer)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            for at in range(0, len(answer.body), 1 << 16):
                self.state.sent += self.wfile.write(answer.body[at : at + (1 << 16)])


@contextlib.contextmanager
def serving_ranges(
    root: Path, *, ranges: bool = True, suffixes: bool = True, certificate: Path | None = None
) -> Iterator[RangeServer]:
    """Serve a folder on a free port of this machine, in parts where a client wants them.

    Over TLS with a `certificate`, which has its key in the same file.
    """
    state = RangeServer(ranges=ranges, suffixes=suffixes)
    handler = functools.partial(type("Handler", (_Handler,), {"state": state}), directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        state.url = f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def certificate_of_localhost() -> bytes:
    """A certificate of 127.0.0.1 that vouches for itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private
