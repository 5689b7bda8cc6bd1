import contextlib
import gzip
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from msgspec import structs

from cairn import web
from cairn.build.inputs import downloads, variables
from cairn.build.model import BuildRequest
from cairn.errors import NetworkError, SourceError
from cairn.stack import Download, Environment
from helpers.build import MakeRequest, with_project

pytestmark = pytest.mark.usefixtures("build_cache")


def archive(folder: Path, version: str) -> Path:
    """An archive of one folder with a header, as releases of libraries are."""
    path = folder / f"kernels-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        data = version.encode()
        member = tarfile.TarInfo(f"kernels-{version}/include/kernels.h")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def request_of(request_for: MakeRequest, tmp_path: Path) -> BuildRequest:
    """A build whose tree pins version 2 of what it would download."""
    made = request_for(torch="")
    (made.checkouts["torch"] / "pins.cmake").write_text('set(VERSION "2")\nset(OTHER "3")\n')
    download = Download(
        name="kernels",
        url=f"{tmp_path.as_uri()}/kernels-{{version}}.tar.gz",
        file="pins.cmake",
        pattern='VERSION "(?P<version>[0-9]+)"',
    )
    prefix = Environment(cpu={"KERNELS_PREFIX": "{download:kernels}"})
    return with_project(made, downloads=(download,), environment=prefix)


def of(request: BuildRequest) -> list[downloads.PinnedFile]:
    return list(downloads.needed_files(request, request.stack.project("torch")))


@pytest.fixture
def pinned(request_of: BuildRequest) -> downloads.PinnedFile:
    """What that build needs."""
    (needed,) = of(request_of)
    return needed


def ready(pinned: downloads.PinnedFile, *, offline: bool = False) -> Path:
    return downloads.ready(pinned, say=lambda _: None, offline=offline)


def test_what_the_tree_pins_is_fetched_once_and_kept(
    request_of: BuildRequest, pinned: downloads.PinnedFile, tmp_path: Path
) -> None:
    path = archive(tmp_path, "2")
    with pytest.raises(NetworkError, match="--offline"):
        ready(pinned, offline=True)
    folder = ready(pinned)
    assert (folder / "include" / "kernels.h").read_text() == "2"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.unlink()
    assert ready(pinned, offline=True) == folder
    (source,) = downloads.sources([request_of])
    assert (source.url, source.sha256) == (pinned.url, digest)


def test_a_damaged_copy_is_fetched_again_and_what_upstream_exchanges_is_refused(
    pinned: downloads.PinnedFile, tmp_path: Path, build_cache: Path
) -> None:
    archive(tmp_path, "2")
    ready(pinned)
    (kept,) = build_cache.rglob("kernels-2.tar.gz")
    kept.write_bytes(kept.read_bytes()[:50])
    assert (ready(pinned) / "include" / "kernels.h").read_text() == "2"
    kept.unlink()
    (tmp_path / "kernels-2.tar.gz").write_bytes(b"something else")
    with pytest.raises(SourceError, match="was expected"):
        ready(pinned)
    with pytest.raises(SourceError, match="0000"):
        ready(structs.replace(pinned, sha256="0" * 64))


def test_nothing_is_fetched_for_what_is_off_or_given_by_the_user_or_not_pinned(
    request_of: BuildRequest,
) -> None:
    (download,) = request_of.stack.project("torch").downloads
    featured = structs.replace(download, feature="flash_attention")
    off = with_project(request_of, downloads=(featured,))
    assert of(off) == []
    assert len(of(structs.replace(off, features=frozenset({"flash_attention"})))) == 1
    given = variables.parse_build_env(["torch:KERNELS_PREFIX=/opt/kernels"], request_of.stack)
    assert of(structs.replace(request_of, build_env=given)) == []
    (request_of.checkouts["torch"] / "pins.cmake").write_text("")
    assert of(request_of) == []


def test_what_is_no_archive_is_told_and_the_next_try_gets_the_right_one(
    pinned: downloads.PinnedFile, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        ready(pinned)
    (tmp_path / "kernels-2.tar.gz").write_text("<html>log in first</html>")
    with pytest.raises(SourceError, match="cannot be unpacked"):
        ready(pinned)
    archive(tmp_path, "2")
    assert (ready(pinned) / "include" / "kernels.h").read_text() == "2"


def test_a_tar_that_ends_in_a_zip_is_a_tar(pinned: downloads.PinnedFile, tmp_path: Path) -> None:
    """As for CMake's reader, libarchive, which begins at the beginning."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as made:
        made.writestr("other.h", b"3")
    with tarfile.open(archive(tmp_path, "2"), "w") as tar:
        for name, data in (("include/kernels.h", b"2"), ("samples.zip", inner.getvalue())):
            member = tarfile.TarInfo(f"kernels-2/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert (ready(pinned) / "include" / "kernels.h").read_text() == "2"


@pytest.mark.parametrize("kind", ["half a gzip", "half a tar", "half a zip", "a damaged zip", "nothing"])
def test_what_is_not_whole_is_told(pinned: downloads.PinnedFile, tmp_path: Path, kind: str) -> None:
    path = archive(tmp_path, "2")
    data = path.read_bytes()
    if kind.endswith("zip") and kind != "half a gzip":
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("include/kernels.h", b"2" * 1000)
        data = path.read_bytes()
    if kind == "a damaged zip":
        data = data.replace(b"2" * 500, b"3" * 500, 1)
    elif kind == "half a tar":
        data = gzip.decompress(data)[:700]
    else:
        data = data[: len(data) // 2] if kind != "nothing" else b""
    path.write_bytes(data)
    with pytest.raises(SourceError, match="cannot be unpacked"):
        ready(pinned)


def test_what_a_build_or_a_user_changes_there_is_unpacked_again(
    pinned: downloads.PinnedFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(tmp_path, "2")
    header = ready(pinned) / "include" / "kernels.h"
    assert ready(pinned) == header.parent.parent
    assert not capsys.readouterr().err
    header.write_text("edited")
    (header.parent / "more.h").touch()
    assert (ready(pinned) / "include" / "kernels.h").read_text() == "2"
    assert not (header.parent / "more.h").exists()
    assert "was changed" in capsys.readouterr().err


def test_two_addresses_of_the_same_bytes_do_not_disturb_each_other(
    pinned: downloads.PinnedFile, tmp_path: Path
) -> None:
    path = archive(tmp_path, "2")
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / path.name).write_bytes(path.read_bytes())
    other = structs.replace(pinned, url=f"{(tmp_path / 'mirror').as_uri()}/{path.name}")
    first = ready(pinned)
    inode = first.stat().st_ino
    assert ready(other) == first
    assert first.stat().st_ino == inode


def test_a_program_in_a_zip_can_be_run(pinned: downloads.PinnedFile, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "kernels-2.tar.gz", "w") as made:
        for name, mode in (("bin/", 0o40755), ("bin/clang", 0o100755), ("bin/notes", 0o104666)):
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            made.writestr(member, b"")
        made.writestr("of-dos", b"")
    folder = ready(pinned)
    modes = {path.name: path.stat().st_mode & 0o7111 for path in folder.rglob("*") if path.is_file()}
    assert modes == {"clang": 0o111, "notes": 0, "of-dos": 0}


def test_what_a_server_compresses_on_the_way_is_what_the_pin_says(
    pinned: downloads.PinnedFile, tmp_path: Path
) -> None:
    data = archive(tmp_path, "2").read_bytes()

    class Compressing(http.server.BaseHTTPRequestHandler):
        """As servers with `AddEncoding x-gzip .gz` do: the encoding is that of the file."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Compressing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/kernels-2.tar.gz"
        sha256 = hashlib.sha256(data).hexdigest()
        folder = ready(structs.replace(pinned, url=url, sha256=sha256))
        server.shutdown()
    assert (folder / "include" / "kernels.h").read_text() == "2"


def test_a_file_that_never_ends_fills_no_disk(
    pinned: downloads.PinnedFile, build_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "_LARGEST", 1 << 20)
    requests = []

    class Endless(http.server.BaseHTTPRequestHandler):
        """Answers with bytes that never end, and no length."""

        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                for _ in range(1 << 12):  # 256 MiB, where nobody ends it
                    self.wfile.write(bytes(1 << 16))

        def log_message(self, *_words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/kernels-2.tar.gz"
        with pytest.raises(SourceError, match="is larger than 1 MiB"):
            ready(structs.replace(pinned, url=url, sha256="0" * 64))
        server.shutdown()
    assert requests == ["/kernels-2.tar.gz"]
    assert not [path for path in build_cache.rglob("*") if path.is_file() and path.stat().st_size]
