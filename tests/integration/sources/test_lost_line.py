"""A line that breaks: what came stays, and the next try goes on from there."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cairn.errors import NetworkError, SourceError
from cairn.retry import RetryPolicy
from cairn.sources import mirror
from cairn.sources.manifest import restore
from helpers.sources import Saved, Upstream, git

COMMITS, BYTES = 40, 30_000  # of noise in each commit, which no compression makes smaller
ALL = COMMITS * BYTES
QUICK = RetryPolicy(attempts=4, wait=0.01)


@dataclass
class Line:
    """A `git://` server (gitprotocol-pack(5)) whose every connection breaks after so many bytes."""

    folder: Path
    breaks_after: float = float("inf")
    served: list[int] = field(default_factory=list)
    port: int = 0
    is_old: bool = False  # speaks the first protocol, and answers for branches and tags only

    @property
    def url(self) -> str:
        return f"git://127.0.0.1:{self.port}/long.git"

    def answer(self, connection: socket.socket) -> None:
        length = int(connection.recv(4, socket.MSG_WAITALL), 16)
        request = connection.recv(length - 4, socket.MSG_WAITALL).decode()
        path, _, rest = request.partition("\0")
        words = [] if self.is_old else rest.split("\0")
        version = next((word for word in words if word.startswith("version=")), "")
        command = ["git", "upload-pack", str(self.folder / path.partition(" ")[2].lstrip("/"))]
        env = os.environ | {"GIT_PROTOCOL": version, "GIT_CONFIG_GLOBAL": os.devnull}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as child:
            threading.Thread(target=self._listen, args=(connection, child), daemon=True).start()
            self._speak(connection, child)

    def _listen(self, connection: socket.socket, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        with contextlib.suppress(OSError):
            while data := connection.recv(65536):
                child.stdin.write(data)
                child.stdin.flush()
            child.stdin.close()

    def _speak(self, connection: socket.socket, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        self.served.append(0)
        while data := os.read(child.stdout.fileno(), 8192):
            self.served[-1] += len(data)
            if self.served[-1] > self.breaks_after:
                child.kill()
                return
            connection.sendall(data)


@pytest.fixture
def line(upstream: Upstream, saved: Saved) -> Iterator[Line]:
    def make() -> None:
        upstream.create("long", {"a": "0"})
        work, noise = upstream.work("long"), random.Random(0)  # noqa: S311 - any bytes do
        for number in range(COMMITS):
            (work / "noise").write_bytes(noise.randbytes(BYTES))
            git(work, "add", "noise")
            git(work, "commit", "--quiet", "-m", f"Noise {number}")
        git(work, "push", "--quiet", "origin", "HEAD:refs/heads/main")
        shutil.rmtree(work)

    saved.bring("a long history", make)
    found = Line(upstream.folder)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                found.answer(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


def assert_whole(source: mirror.Mirror) -> None:
    assert not (source.path / "shallow").exists()
    assert git(source.path, "rev-list", "--all", "--count") == str(COMMITS + 1)
    assert {ref.split("/")[2] for ref in git(source.path, "for-each-ref").splitlines()} == {"kept"}
    git(source.path, "fsck", "--strict", "--connectivity-only")


def test_a_whole_line_is_fetched_in_one_go(line: Line) -> None:
    source = mirror.of(line.url, retry=QUICK)
    source.find("main", say=print)
    assert_whole(source)
    assert len(line.served) == 1


def test_a_line_that_always_breaks_half_way_is_no_hindrance(line: Line) -> None:
    line.breaks_after = ALL / 4
    said: list[str] = []
    source = mirror.of(line.url, retry=QUICK)
    found = source.find("main", say=said.append)
    assert found.kind == "branch"
    assert found.commit == git(line.folder / "long.git", "rev-parse", "main")
    assert_whole(source)
    assert any("trying again" in text for text in said)


def test_the_next_run_goes_on_where_the_line_broke(line: Line) -> None:
    line.breaks_after = ALL / 4
    source = mirror.of(line.url, retry=RetryPolicy(attempts=2, wait=0.01))
    with pytest.raises(NetworkError):
        source.find("main", say=print)
    come = git(source.path, "rev-list", "--all", "--count")
    assert 0 < int(come) <= COMMITS
    line.breaks_after, line.served = float("inf"), []
    source.find("main", say=print)
    assert sum(line.served) < ALL - BYTES / 2
    assert_whole(source)


def test_other_things_than_those_that_broke_off_are_whole_too(line: Line) -> None:
    git(line.folder / "long.git", "branch", "older", "main~3")
    line.breaks_after = ALL / 4
    source = mirror.of(line.url, retry=RetryPolicy(attempts=2, wait=0.01))
    with pytest.raises(NetworkError):
        source.find("main", say=print)
    line.breaks_after = float("inf")
    older = source.find("older", say=print)
    assert git(source.path, "rev-list", "--count", older.commit) == str(COMMITS + 1 - 3)
    git(source.path, "fsck", "--strict", "--connectivity-only")
    source.find(git(line.folder / "long.git", "rev-parse", "main"), say=print)
    assert_whole(source)


def test_a_line_that_brings_nothing_ends_the_patience(line: Line) -> None:
    line.breaks_after = 100
    with pytest.raises(NetworkError):
        mirror.of(line.url, retry=QUICK).find("main", say=print)
    assert len(line.served) == QUICK.attempts


def test_what_the_origin_lacks_is_not_tried_again(line: Line) -> None:
    with pytest.raises(SourceError, match="mian"):
        mirror.of(line.url, retry=QUICK).find("mian", say=print)
    assert len(line.served) == 2  # the second lists what there is instead


def test_an_old_server_that_gives_no_commit_by_its_id(line: Line, upstream: Upstream) -> None:
    line.is_old = True
    within = git(line.folder / "long.git", "rev-parse", "main~5")
    assert mirror.of(line.url, retry=QUICK).find(within, say=print).commit == within
    assert restore._has(line.url, within, retry=QUICK, say=print)
    upstream.commit("plain", {"elsewhere": "x"}, "Of another repository")
    other = git(line.folder / "plain.git", "rev-parse", "main")
    assert not restore._has(line.url, other, retry=QUICK, say=print)
