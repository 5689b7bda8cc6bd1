"""A store over HTTP: for trying an index, for the gate, and for machines on one desk.

Any static web server can do the same for releases; this one adds what pip and uv make use of: JSON by
`Accept`, parts of files, and answers of a few bytes where nothing has changed.
"""

from __future__ import annotations

import contextlib
import errno
import html
import http.server
import mimetypes
import os
import shutil
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

from cairn.errors import SystemFailureError
from cairn.output import console
from cairn.release.index import keys
from cairn.release.index.render import JSON_TYPE
from cairn.release.serve.negotiation import UnsatisfiableError, choose_page, parse_range

_IDLE = 60.0  # seconds that a connection may wait for its next request
_IMMUTABLE = "public, max-age=31536000, immutable"
_REVALIDATE = "no-cache"
_TYPES = {".whl": "application/zip", ".gz": "application/gzip", ".metadata": "text/plain; charset=utf-8"}


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that is running.

    Attributes:
        url: its address, without a slash at the end.
        port: where it listens.
    """

    url: str
    port: int


@contextlib.contextmanager
def serving(path: Path, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """Serve the store in a folder until the block ends.

    Args:
        path: the folder.
        host: the address to listen on.
        port: where to listen; 0 takes any that is free.

    Raises:
        SystemFailureError: the port is taken, or the address is not ours.
    """
    server = _listen(path, host, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        bound = server.server_address[1]
        shown = f"[{host}]" if ":" in host else host
        yield Server(url=f"http://{shown}:{bound}", port=bound)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _listen(path: Path, host: str, port: int) -> _StoreServer:
    try:
        return _StoreServer((host, port), path)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SystemFailureError(
                f"port {port} of {host} is in use",
                tip="choose a different one with --port, or --port 0 for any free port",
            ) from error
        raise SystemFailureError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    except (TypeError, UnicodeError) as error:  # what socket says of a name with an empty or long part
        raise SystemFailureError(f"cannot listen on {host}: it is not a valid name of a host") from error
    except OverflowError as error:
        raise SystemFailureError(f"{port} is not a valid port", tip="choose one from 0 to 65535") from error


class _StoreServer(http.server.ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], path: Path) -> None:
        self.root = path.resolve()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # The base class looks up the host's name, which can take seconds where DNS is slow.
        super(http.server.HTTPServer, self).server_bind()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base class
        # A client that hangs up is not an error of ours. The base class prints a traceback.
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            console.current().warn(f"a request could not be answered: {type(error).__name__}: {error}")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE
    # Head and body in one packet. Sent apart, the body waits for the client to acknowledge the head, which it
    # does after 40 ms (Nagle's algorithm, RFC 896, and delayed acknowledgement, RFC 1122 4.2.3.2).
    wbufsize = -1
    server: _StoreServer

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Say nothing: the screen belongs to the command that serves."""

    def _answer(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # the body is not read, and must not be taken for the next request
        try:
            address = urllib.parse.urlsplit(self.path).path
        except ValueError:  # such as `//[`
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        path = self._find(address)
        if path is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif path.is_dir():
            self._answer_folder(path, address)
        elif path.is_file():
            self._answer_file(path, _content_type(path))
        else:  # such as a pipe, which would be waited for
            self._refuse(HTTPStatus.NOT_FOUND)

    def _find(self, address: str) -> Path | None:
        return _local_path(self.server.root, address)

    def _answer_folder(self, path: Path, address: str) -> None:
        if not address.endswith("/"):
            # Relative, so that it holds behind any proxy; a name alone cannot lead to a different host.
            last = address.rpartition("/")[2]
            self._refuse(HTTPStatus.MOVED_PERMANENTLY, {"Location": f"./{last}/"})
            return
        names = ("index.html", "index.json")
        available = [n for n in names if (page := self._find(f"{address}{n}")) is not None and page.is_file()]
        if not available:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        choice = choose_page(self.headers.get("Accept"), available)
        if choice is None:
            self._refuse(HTTPStatus.NOT_ACCEPTABLE, {"Vary": "Accept"})
            return
        charset = "; charset=utf-8" if choice.content_type.startswith("text/") else ""
        self._answer_file(path / choice.filename, choice.content_type + charset, {"Vary": "Accept"})

    def _answer_file(self, path: Path, content_type: str, more: dict[str, str] | None = None) -> None:
        """All of a file, the part that was asked for, or that the client has it already."""
        try:
            stream = path.open("rb")
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        with stream:
            status = os.fstat(stream.fileno())
            # A file is never written in place: new bytes are a new inode. Hashing would cost more than
            # sending.
            etag = f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"'
            headers = {
                "Content-Type": content_type,
                # Below files/, the digest of the bytes is in the path.
                "Cache-Control": _IMMUTABLE
                if path.is_relative_to(self.server.root / "files")
                else _REVALIDATE,
                "ETag": etag,
                "Last-Modified": self.date_time_string(int(status.st_mtime)),
                "Accept-Ranges": "bytes",
                **(more or {}),
            }
            # Ours are strong; a proxy that compresses may have made a weak one of it (RFC 9110, section
            # 8.8.1).
            known = (self.headers.get("If-None-Match") or "").split(",")
            if etag in [part.strip().removeprefix("W/") for part in known]:
                self._head(HTTPStatus.NOT_MODIFIED, headers)
                return
            # If-Range: a part only of the file that the client has begun; of a changed one it gets all.
            begun = self.headers.get("If-Range") in (None, etag)
            size = status.st_size
            try:
                span = parse_range(self.headers.get("Range") if begun else None, size)
            except UnsatisfiableError:
                self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"})
                return
            if span is None:
                self._head(HTTPStatus.OK, headers | {"Content-Length": str(size)})
            else:
                last = span.start + span.count - 1
                part = {
                    "Content-Length": str(span.count),
                    "Content-Range": f"bytes {span.start}-{last}/{size}",
                }
                self._head(HTTPStatus.PARTIAL_CONTENT, headers | part)
                stream.seek(span.start)
            self._copy(stream, size if span is None else span.count)

    def _copy(self, stream: BinaryIO, count: int) -> None:
        if self.command == "HEAD":
            return
        # Not more than was announced, also of a file that grows meanwhile.
        while count > 0 and (chunk := stream.read(min(count, shutil.COPY_BUFSIZE))):  # type: ignore[attr-defined]
            self.wfile.write(chunk)
            count -= len(chunk)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _refuse(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        said = html.escape(f"{status.value} {status.phrase}")
        body = f"<!DOCTYPE html>\n<title>{said}</title>\n{said}\n".encode()
        sized = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body))}
        self._head(status, (headers or {}) | sized)
        if self.command != "HEAD":
            self.wfile.write(body)


def _local_path(root: Path, address: str) -> Path | None:
    """The file or folder at an address; None for what is not there, or not the store's own.

    A folder with a store may have other files too, and the folder of a store may be named by mistake.
    """
    try:
        parts = urllib.parse.unquote(address, errors="strict").split("/")
    except UnicodeDecodeError:
        return None
    if any(part.startswith(".") or "\\" in part or "\0" in part for part in parts) or "" in parts[1:-1]:
        return None
    key = "/".join(part for part in parts if part)
    try:
        # A link inside the store may lead anywhere: where it ends counts too.
        end = (root / key).resolve(strict=True)
        own = keys.is_own(key) and keys.is_own(end.relative_to(root).as_posix())
    except (OSError, ValueError):  # ValueError: outside
        return None
    return root / key if own else None


def _content_type(path: Path) -> str:
    if path.name == "index.json":
        return JSON_TYPE
    return _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
