"""What a mirror says of names, and what a run that was killed leaves of it."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from cairn.errors import SourceError
from cairn.sources import mirror
from cairn.sources.git import command
from cairn.sources.mirror import Mirror


@pytest.fixture
def source(tmp_path: Path) -> Mirror:
    """The mirror, yet to be made, of an origin with twelve commits and three branches."""
    origin = tmp_path / "origin"
    origin.mkdir()
    command.run(origin, "init", "--quiet", "--initial-branch=main")
    for number in range(12):
        command.run(origin, "commit", "--quiet", "--allow-empty", f"--message={number}")
    command.run(origin, "branch", "other", "HEAD~5")
    command.run(origin, "branch", "it's")
    return Mirror(origin=str(origin), path=tmp_path / "mirror.git")


def silent(_line: str) -> None:
    pass


def test_a_branch_with_a_quotation_mark_is_a_branch(source: Mirror) -> None:
    resolved = source.find("it's", say=silent)
    assert (resolved.kind, resolved.name) == ("branch", "it's")


def test_a_run_that_was_ended_as_it_forgot_pieces_leaves_a_mirror_that_goes_on(source: Mirror) -> None:
    source.path.mkdir()
    command.run(source.path, "init", "--quiet", "--bare", ".")
    mirror._fetch_piece(source, ("main",), 2)
    in_the_way = source.path / "refs/cairn/pieces/0.lock"
    in_the_way.touch()
    with pytest.raises(SourceError):
        source.find("other", say=silent)
    in_the_way.unlink()
    for name, count in (("other", "7"), ("main", "12")):
        commit = source.find(name, say=silent).commit
        assert command.line(source.path, "rev-list", "--count", commit) == count


class _OldServer(http.server.BaseHTTPRequestHandler):
    """Git over HTTP as before protocol 2: it gives the tips of branches and tags, and no commit by its id."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": "/",
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        answer = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        self.wfile.write(b"HTTP/1.0 200 OK\r\n" + answer.stdout)

    do_POST = do_GET  # noqa: N815 - where the class above looks

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture
def by_old_server(source: Mirror) -> Iterator[Mirror]:
    """The mirror of that origin behind a server that gives no commit by its id."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _OldServer) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        yield structs.replace(
            source, origin=f"http://127.0.0.1:{server.server_address[1]}{source.origin}/.git"
        )
        server.shutdown()
        thread.join()


def test_a_commit_below_the_depth_is_not_said_to_be_lacking(source: Mirror, by_old_server: Mirror) -> None:
    deep = command.line(Path(source.origin), "rev-parse", "main~3")
    shallow = structs.replace(by_old_server, path=by_old_server.path.with_name("shallow.git"), depth=1)
    for hashtag in (deep, deep[:12]):
        with pytest.raises(SourceError, match=f"'{hashtag}' was not found .* by --depth 1") as error:
            shallow.find(hashtag, say=silent)
        assert "has no branch" not in str(error.value)
        assert "without --depth" in (error.value.tip or "")
        assert by_old_server.find(hashtag, say=silent).commit == deep
    # What is no commit is not there, however deep one looks.
    with pytest.raises(SourceError, match="has no branch, tag or commit 'nowhere'"):
        shallow.find("nowhere", say=silent)
    with pytest.raises(SourceError, match="has no branch, tag or commit"):
        by_old_server.find("0" * 40, say=silent)
