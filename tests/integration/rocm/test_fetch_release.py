"""`cairn rocm fetch --release`, against pages of tarballs in the shape of AMD's."""

from __future__ import annotations

import http.server
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn import targets, web
from helpers.program import Cairn
from helpers.serving import QuietHandler

# As ROCm/TheRock's index_generation_s3_tar.py writes it: the names are in a script, and there is no link.
PAGE = """<html><head><title>Tarball index</title><script>
const files = {files};
</script></head><body><h1>Tarball index</h1><ul id="fileList"></ul></body></html>"""
UNVERIFIED = "--allow-unverified"  # AMD publishes no sha256 beside a tarball


def tarball(folder: Path, group: str, version: str, **members: bytes) -> Path:
    path = folder / f"therock-dist-linux-{group}-{version}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in ({"bin/hipcc": version.encode(), "lib/x.so": group.encode()} | members).items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


class Pages:
    """The servers of streams: a folder for each, below one address."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ranges, self.wholes, self.asked = folder, True, True, list[str]()

    def respond(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        path = self.folder / handler.path.replace("%2B", "+").strip("/")
        status, data, headers = 200, b"", {}
        if path.is_dir() and handler.path.endswith("/core/tarball/"):
            files = [
                {"name": each.name, "mtime": 1795867200.5}
                for each in sorted(path.iterdir())
                if each.name.endswith(".tar.gz")
            ]
            data = PAGE.format(files=json.dumps(files)).encode()
        elif path.is_file() and (self.wholes or "Range" in handler.headers):
            data = path.read_bytes()
        else:
            status = 404
        if status == 200 and self.ranges and (span := handler.headers.get("Range")):
            begin, end = (int(number) for number in span.removeprefix("bytes=").split("-"))
            status, headers = 206, {"Content-Range": f"bytes {begin}-{min(end, len(data) - 1)}/{len(data)}"}
            data = data[begin : end + 1]
        handler.send_response(status)
        for name, value in {**headers, "ETag": '"1"', "Content-Length": str(len(data))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    pages = Pages(tmp_path / "www")

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 - the base's name
            pages.respond(self)

    stable, nightly, rc = (tmp_path / f"www/{name}/rocm/core/tarball" for name in ("stable", "nightly", "rc"))
    for version in ("10.0.0", "10.1.0", "9.10.0"):
        tarball(stable, "gfx110X-all", version)
    tarball(stable, "multiarch", "10.1.0")
    tarball(stable, "gfx110X-all-tests", "10.1.0")
    tarball(stable, "gfx94X-dcgpu", "10.2.0")
    for date in (20261127, 20261128):
        tarball(nightly, "gfx110X-all", f"10.2.0a{date}")
    tarball(rc, "gfx1151", "10.2.0rc0")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        streams = {
            **{name: f"{address}/{name}/rocm/whl-next/" for name in ("stable", "nightly", "rc")},
            "dev": "http://127.0.0.1:9/rocm/whl-next/",
        }
        monkeypatch.setattr(targets, "upstream_streams", lambda: streams)
        yield pages
        server.shutdown()


@pytest.fixture
def words(tmp_path: Path) -> tuple[object, ...]:
    return "rocm", "fetch", "--platform", "linux", "--output-dir", tmp_path / "out"


@pytest.mark.parametrize(
    "case",
    [
        # Numbers are compared as numbers, and a newer version without the family does not count.
        ("latest", ("--families", "gfx110X-all"), "10.1.0", "gfx110X-all"),
        ("latest", ("--targets", "gfx1100"), "10.1.0", "gfx110X-all"),
        ("latest", ("--targets", "gfx942"), "10.2.0", "gfx94X-dcgpu"),
        ("latest", (), "10.1.0", "multiarch"),
        ("latest", ("--targets", "gfx1100,gfx942"), "10.1.0", "multiarch"),
        ("10.0.0", ("--families", "gfx110X-all"), "10.0.0", "gfx110X-all"),
        ("nightly", ("--families", "gfx110X-all"), "10.2.0a20261128", "gfx110X-all"),
        ("10.2.0a20261127", ("--targets", "gfx1103"), "10.2.0a20261127", "gfx110X-all"),
        ("10.2.0rc0", ("--targets", "gfx1151"), "10.2.0rc0", "gfx1151"),
    ],
)
def test_a_release_is_found_by_its_name(
    cairn: Cairn, pages: Pages, words: tuple[object, ...], case: tuple[str, tuple[str, ...], str, str]
) -> None:
    name, gpu, chosen, group = case
    found = cairn.json(*words, "--release", name, *gpu, UNVERIFIED, "--dry-run")
    assert (found["release"]["name"], found["release"]["group"]) == (chosen, group)
    assert found["release"]["created"] == "2026-11-28T12:00:00Z"
    (tarball,) = found["artifacts"]
    assert tarball["archive"] == f"therock-dist-linux-{group}-{chosen}.tar.gz"
    assert tarball["size"] == next(pages.folder.rglob(tarball["archive"])).stat().st_size


@pytest.mark.parametrize("offers", ["parts", "whole files"])
def test_what_was_announced_is_unpacked(
    cairn: Cairn, pages: Pages, words: tuple[object, ...], tmp_path: Path, offers: str
) -> None:
    pages.ranges = offers == "parts"
    fetch = (*words, "--release", "latest", "--families", "gfx110X-all")
    _, err = cairn(*fetch, code=2)
    assert "have no sha256sum beside them" in err
    assert "--allow-unverified" in err
    assert not (tmp_path / "out").exists()
    out, _ = cairn(*fetch, UNVERIFIED)
    assert "ROCm 10.1.0 of the stream stable for gfx110X-all: http://127.0.0.1:" in out
    tree = tmp_path / "out/therock-dist-linux-gfx110X-all-10.1.0"
    assert (tree / "bin/hipcc").read_bytes() == b"10.1.0"
    assert not (tree / "artifact_manifest.txt").exists()
    cairn(*fetch, UNVERIFIED, "--layout", "flatten")
    assert (tmp_path / "out/lib/x.so").read_bytes() == b"gfx110X-all"
    cairn(*fetch, UNVERIFIED, "--layout", "archives")
    assert (tmp_path / "out" / f"{tree.name}.tar.gz").is_file()


@pytest.mark.parametrize("fault", ["there is no http://127.0.0.1", "is larger than 0 MiB"])
def test_a_whole_file_that_goes_or_does_not_end_is_no_tarball(
    cairn: Cairn, pages: Pages, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    pages.ranges, pages.wholes = False, "larger" in fault
    monkeypatch.setattr(web, "most_of", lambda _folder: 100)
    assert fault in cairn(*words, "--release", "10.1.0", UNVERIFIED, code=5 if pages.wholes else 9).err


def test_a_sha256_beside_a_tarball_counts(
    cairn: Cairn, pages: Pages, words: tuple[object, ...], tmp_path: Path
) -> None:
    (path,) = pages.folder.rglob("therock-dist-linux-multiarch-10.1.0.tar.gz")
    path.with_name(f"{path.name}.sha256sum").write_text(f"{'0' * 64}  {path.name}\n")
    assert "is not what its sha256sum says" in cairn(*words, "--release", "10.1.0", code=9).err
    assert not (tmp_path / "out" / path.name.removesuffix(".tar.gz")).exists()


@pytest.mark.parametrize(
    "case",
    [
        ("10.3.0", (), 2, ("has no ROCm 10.3.0", "it has 10.2.0, 10.1.0, 10.0.0, 9.10.0")),
        ("10.0.0", ("--targets", "gfx942"), 2, ("has no ROCm 10.0.0 for gfx942", "there for gfx110X-all")),
        ("newest", (), 2, ("'newest' is no release of ROCm", "latest, stable, nightly")),
        ("../10.1.0", (), 2, ("is no release of ROCm", "such as 10.1.0")),
        ("dev", (), 5, ("Connection refused", "--store https://")),
        ("nightly", ("--platform", "windows"), 2, ("names no tarball of ROCm for windows", "--platform")),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("pages")
def test_what_is_not_there_is_told_with_what_is(
    cairn: Cairn, words: tuple[object, ...], case: tuple[str, tuple[str, ...], int, tuple[str, str]]
) -> None:
    name, gpu, code, messages = case
    _, err = cairn(*words, "--release", name, *gpu, code=code)
    assert all(message in err for message in messages), err


def test_a_page_that_the_user_names(cairn: Cairn, pages: Pages, words: tuple[object, ...]) -> None:
    address = targets.upstream_streams()["nightly"].replace("whl-next/", "core/tarball")
    found = cairn.json(*words, "--release", "latest", "--targets", "gfx1100", "--store", address, UNVERIFIED)
    assert found["release"]["name"] == "10.2.0a20261128"
    assert found["release"]["stream"] == ""
    assert pages.asked


def test_a_tarball_that_leads_out_is_not_unpacked(
    cairn: Cairn, pages: Pages, words: tuple[object, ...], tmp_path: Path
) -> None:
    tarball(pages.folder / "stable/rocm/core/tarball", "gfx1151", "10.1.0", **{"../../evil": b"x"})
    _, err = cairn(*words, "--release", "10.1.0", "--targets", "gfx1151", UNVERIFIED, code=7)
    assert "leads out of it" in err
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("name", "body", "code", "message"),
    [
        ("foo", None, 2, "'foo' is no release of ROCm"),
        ("latest", "therock-dist-linux-multiarch-" + "9" * 5000 + ".0.0.tar.gz", 2, "names no tarball"),
        ("latest", "therock-dist-linux-a" * 100_000, 2, "names no tarball"),
        (
            "latest",
            " " * (1 << 24) + "therock-dist-linux-multiarch-10.3.0.tar.gz",
            5,
            "is larger than 16 MiB",
        ),
    ],
    ids=["no release", "long number", "long page", "page cut off"],
)
def test_a_page_of_nonsense_is_one_line(
    cairn: Cairn, words: tuple[object, ...], name: str, body: str | None, code: int, message: str
) -> None:
    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 - the base's name
            self.send_response(200)
            self.end_headers()
            self.wfile.write((PAGE if body is None else body).encode())

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = f"http://127.0.0.1:{server.server_address[1]}/"
        _, err = cairn(*words, UNVERIFIED, "--release", name, "--store", page, code=code)
        server.shutdown()
    assert message in err


def test_a_folder_is_no_page_of_tarballs(cairn: Cairn, words: tuple[object, ...], tmp_path: Path) -> None:
    _, err = cairn(*words, UNVERIFIED, "--release", "10.1.0", "--store", tmp_path, code=2)
    assert "is no page of tarballs" in err
