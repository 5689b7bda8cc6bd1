"""Wheels that are read where they lie: by parts, and with the answers that the file gives."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from cairn import web
from cairn.cli.main import main
from cairn.formats.zip import layout
from cairn.wheels import published
from cairn.wheels.contents.code_archives import named_targets
from helpers.formats import make_elf
from helpers.range_server import Answer, RangeServer, certificate_of_localhost, serving_ranges
from helpers.trail import ROOT
from helpers.wheels import LINUX, MakeWheel, altered, build_wheel, cairn_wheel

UNREAD = ("targets", "libraries", "kind", "archives", "builds")
"""What nobody can tell without the libraries."""
NOISE = b"".join(hashlib.sha512(n.to_bytes(4, "big")).digest() for n in range(1 << 14))
"""1 MiB that deflate makes no shorter."""
Fault = Callable[[int, Answer], None]
Error = Callable[[], str]


def wheel_files(*, version: str = "1") -> dict[str, bytes]:
    return {
        "demo/version.py": b"git_version = '0123456789abcdef0123456789abcdef01234567'\n",
        "demo/lib.so": make_elf(soname="lib.so", needed=("libc.so.6",)) + NOISE,
        "demo/more.so": make_elf(soname="more.so") + NOISE,
        "demo/kernels/a_gfx1100.hsaco": version.encode() * 100,
    }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    with serving_ranges(tmp_path) as state:
        yield state


@pytest.fixture
def large(make_wheel: MakeWheel) -> Path:
    """A wheel of 2 MB with a name that has to be quoted in a URL."""
    return make_wheel(version="2.9.0+rocm7.10", tags=LINUX, files=wheel_files())


@pytest.fixture
def url(server: RangeServer, large: Path, tmp_path: Path) -> str:
    return f"{server.url}/{quote(large.relative_to(tmp_path).as_posix())}"


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[[str], dict[str, object]]:
    def show(word: str) -> dict[str, object]:
        assert cairn_wheel("show", word, "--json") == 0
        value: dict[str, object] = json.loads(capsys.readouterr().out)[0]
        return value

    return show


def test_a_url_gives_what_the_file_gives(
    server: RangeServer, large: Path, url: str, shown: Callable[[str], dict[str, object]]
) -> None:
    remote = shown(url)
    here = shown(str(large))
    assert {name: remote[name] for name in UNREAD} == dict.fromkeys(UNREAD)
    assert {**here, **dict.fromkeys(UNREAD), "unread": remote["unread"]} == remote
    assert remote["named_targets"] == ["gfx1100"]
    assert remote["record_problems"] == []
    assert 2 << 20 < int(str(remote["unread"])) < large.stat().st_size
    assert len(server.requests) < 5
    assert server.sent < large.stat().st_size / 4


def test_what_was_not_read_is_said(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn_wheel("show", url) == 0
    out, err = capsys.readouterr()
    assert "by file names: gfx1100" in out
    assert "not read (--binaries would fetch 2.1 MB)" in out
    assert "hashes not checked" in out
    assert "none" not in out.replace("extras", "")  # nothing unread is called none
    assert "requests" in err


def test_binaries_are_read_where_they_are_wanted(
    large: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn_wheel("show", url, "--binaries", "--json") == 0
    out, err = capsys.readouterr()
    assert cairn_wheel("show", large, "--json") == 0
    assert json.loads(out) == json.loads(capsys.readouterr().out)
    assert err.index("fetching demo-2.9.0+rocm7.10") < err.index("sha256")


@pytest.mark.parametrize("refused", ["suffixes", "suffixes from the start", "ranges"])
def test_a_server_may_know_less(
    server: RangeServer, large: Path, url: str, refused: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some do not know the last bytes of a file, or take them for the first; Python's own has no parts."""

    def take_for_first(_number: int, answer: Answer) -> None:
        if server.headers["Range"].startswith("bytes=-"):
            size = int(answer.headers["Content-Range"].rpartition("/")[2])
            answer.headers["Content-Range"] = f"bytes 0-{len(answer.body) - 1}/{size}"

    if refused == "suffixes from the start":
        server.fault = take_for_first
    else:
        setattr(server, refused, False)
    assert cairn_wheel("show", url, "--json") == 0
    out, err = capsys.readouterr()
    summary = json.loads(out)[0]
    assert summary["distribution"] == "demo"
    assert (summary["unread"] is None) is (refused == "ranges")
    assert ("is not offered in parts: fetching it whole, 2.1 MB" in err) is (refused == "ranges")
    assert (server.sent > large.stat().st_size) is (refused == "ranges")


def header(name: str, value: str, *, at: int = 1) -> Fault:
    def fault(number: int, answer: Answer) -> None:
        if number >= at:
            answer.headers[name] = value

    return fault


def status(code: int) -> Fault:
    def fault(_number: int, answer: Answer) -> None:
        answer.status = code

    return fault


def shortened(number: int, answer: Answer) -> None:
    if number == 2:
        answer.body = answer.body[:-5]


def lengthened(_number: int, answer: Answer) -> None:
    answer.body += b"more"
    answer.headers["Content-Length"] = str(len(answer.body))


def shifted(number: int, answer: Answer) -> None:
    """Bytes of another place under the offsets that were requested."""
    if number == 1:
        answer.body = bytes(len(answer.body))


def whole_later(number: int, answer: Answer) -> None:
    if number == 2:
        answer.status = 200
        del answer.headers["Content-Range"]


FAULTS: dict[str, tuple[Fault, int, str]] = {
    "404": (status(404), 5, "there is no http"),
    "403": (status(403), 5, "it answers 403"),
    "500": (status(500), 5, "it answers 500"),
    "another file from the second part on": (header("ETag", '"other"', at=2), 5, "was changed on its server"),
    "longer from the second part on": (
        header("Content-Range", "bytes 0-32767/99999999", at=2),
        5,
        "was changed on its server",
    ),
    "whole from the second part on": (whole_later, 5, "was changed on its server"),
    "no offsets": (header("Content-Range", "items 0-1/2"), 5, "cannot read"),
    "wrong offsets": (header("Content-Range", "bytes 5-131076/2100000"), 5, "cannot read"),
    "compressed": (header("Content-Encoding", "gzip"), 5, "cannot read"),
    "cut off": (shortened, 5, "cannot read"),
    "other bytes": (shifted, 7, "has no end record"),
    "length too large": (header("Content-Length", "9999999"), 5, "cannot read"),
    "more than requested": (lengthened, 5, "with more than 131072 bytes"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_server_is_one_line(
    server: RangeServer, url: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault, code, message = FAULTS[name]
    server.fault = fault
    assert cairn_wheel("show", url) == code
    out, err = capsys.readouterr()
    assert out == ""
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]


def test_a_file_that_is_exchanged_meanwhile_is_refused(
    server: RangeServer, large: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def exchange(number: int, _answer: Answer) -> None:
        if number == 1:
            large.write_bytes(large.read_bytes()[:-1] + b"\1")

    server.fault = exchange
    assert cairn_wheel("show", url) == 5
    assert "was changed on its server while it was read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not a ZIP archive"),
        (b"<html>log in</html>" * 9, "is not a ZIP archive"),
        (
            layout.END.pack(layout.END_MAGIC, 0, 0, 9, 9, 1 << 20, 1 << 30, 0),
            "is not where its end record says",
        ),
    ],
    ids=["empty", "page", "beyond"],
)
def test_a_file_that_is_no_wheel_is_refused(
    server: RangeServer, tmp_path: Path, data: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo-1.0-py3-none-any.whl").write_bytes(data)
    assert cairn_wheel("show", f"{server.url}/demo-1.0-py3-none-any.whl") == 7
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("s3://bucket/demo-1.0-py3-none-any.whl", "wheels cannot be read from s3://"),
        ("https://h/simple/", "is not the URL of a wheel"),
        ("https://h/simple/#demo==", "names no wheel of https://h/simple/"),
        ("nowhere#demo==1", "there is no folder nowhere"),
    ],
)
def test_a_word_that_names_no_wheel_is_refused(
    word: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn_wheel("show", word) == 2
    assert message in capsys.readouterr().err


def test_an_address_that_cannot_be_read_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """Its port may be the password of somebody who forgot a name."""
    with pytest.raises(SystemExit):
        cairn_wheel("show", "https://h:secret/demo-1.0-py3-none-any.whl")
    err = capsys.readouterr().err
    assert "its host or its port cannot be read" in err
    assert "secret" not in err


def test_a_password_is_sent_and_never_shown(
    server: RangeServer, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = url.replace("http://", "http://me:s%40cret@")
    assert cairn_wheel("show", secret, "--json") == 0
    assert server.headers["Authorization"] == "Basic bWU6c0BjcmV0"
    server.fault = status(403)
    assert cairn_wheel("show", f"{secret}?token=hidden") == 5
    out, err = capsys.readouterr()
    assert "cret" not in out + err
    assert "hidden" not in out + err


@pytest.mark.parametrize("there", ["a different server", "the same"])
def test_a_redirection_takes_the_range_and_no_password_to_others(
    server: RangeServer, large: Path, url: str, there: str, shown: Callable[[str], dict[str, object]]
) -> None:
    place = large.with_name(f"moved-{large.name}")
    place.write_bytes(large.read_bytes())
    with serving_ranges(large.parent) as second:
        final = second if there == "a different server" else server
        base = final.url if final is second else url.rpartition("/")[0]

        def moved(_number: int, answer: Answer) -> None:
            if "moved-" not in server.requests[-1][0]:
                answer.status, answer.body = 302, b""
                answer.headers = {"Location": f"{base}/{quote(place.name)}", "Content-Length": "0"}

        server.fault = moved
        assert shown(url.replace("http://", "http://me:secret@"))["distribution"] == "demo"
        first, *rest = [path for path, _ in server.requests]
        assert "moved-" not in first
        assert all("moved-" in path for path in rest)
        assert ("Authorization" in final.headers) is (final is server)
        assert final.headers["Range"].startswith("bytes=")


def test_a_password_may_be_in_the_netrc_file(
    server: RangeServer,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shown: Callable[[str], dict[str, object]],
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password s@cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert shown(url)["distribution"] == "demo"
    assert server.headers["Authorization"] == "Basic bWU6c0BjcmV0"


def test_an_index_with_a_password_passes_it_on_to_its_files(
    server: RangeServer, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def locked(_number: int, answer: Answer) -> None:
        answer.status = answer.status if "Authorization" in server.headers else 401

    server.fault = locked
    page = index / "demo" / "index.html"
    for links in (page.read_text(), page.read_text().replace('href="', f'href="{server.url}/simple/demo/')):
        page.write_text(links)
        assert cairn_wheel("show", f"{server.url}/simple/#demo==2.0") == 5
        assert "it answers 401" in capsys.readouterr().err
        word = f"{server.url}/simple/#demo==2.0".replace("http://", "http://me:secret@")
        assert cairn_wheel("show", word) == 0
        assert "secret" not in "".join(capsys.readouterr())


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A simple index with two builds of a version, of which one has wheels for many Pythons."""
    page = tmp_path / "simple" / "demo"
    page.mkdir(parents=True)
    names = []
    for version, tags in (
        ("2.0+rocm7.1", ("py3-none-any",)),
        ("2.0+rocm7.2", ("py3-none-any",)),
        ("2.0+rocm7.2", ("cp27-cp27mu-manylinux1_x86_64",)),
        ("1.0", ("cp27-cp27mu-manylinux1_x86_64",)),
        ("1.0", ("cp26-cp26mu-manylinux1_x86_64",)),
    ):
        wheel = build_wheel(page, version=version, tags=tags)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        names.append(f'<a href="{quote(wheel.name)}#sha256={digest}">{wheel.name}</a>')
    (page / "index.html").write_text("\n".join(names))
    return tmp_path / "simple"


@pytest.mark.parametrize(
    ("fragment", "name"),
    [
        ("demo==2.0", "demo-2.0+rocm7.2-py3-none-any.whl"),
        ("Demo", "demo-2.0+rocm7.2-py3-none-any.whl"),
        ("demo==2.0+rocm7.1", "demo-2.0+rocm7.1-py3-none-any.whl"),
        ("demo-1.0-cp27-cp27mu-manylinux1_x86_64.whl", "demo-1.0-cp27-cp27mu-manylinux1_x86_64.whl"),
    ],
)
def test_an_index_names_a_wheel(
    server: RangeServer,
    index: Path,
    fragment: str,
    name: str,
    shown: Callable[[str], dict[str, object]],
) -> None:
    assert shown(f"{server.url}/simple#{fragment}")["file_name"] == name
    assert shown(f"{server.url}/simple/#{fragment}")["unread"] is not None
    assert shown(f"{index}#{fragment}")["file_name"] == name  # the same index as a folder
    assert shown(f"{index / 'demo'}#{fragment}")["file_name"] == name  # a folder of wheels


@pytest.mark.parametrize(
    ("fragment", "code", "message"),
    [
        ("demo==3.0", 5, "has no wheel demo==3.0: it has demo-1.0-cp26"),
        ("other==3.0", 5, "has no wheel other==3.0: it has no wheel of other"),
        ("demo==1.0", 2, "has 2 wheels demo==1.0, and none is for this Python"),
    ],
)
def test_what_an_index_lacks_is_said_with_what_it_has(
    server: RangeServer,
    index: Path,
    fragment: str,
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for place in (f"{server.url}/simple", str(index)):
        assert cairn_wheel("show", f"{place}#{fragment}") == code
        assert message in capsys.readouterr().err


def test_verify_fetches_and_compares_the_hash(
    server: RangeServer, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn_wheel("verify", f"{server.url}/simple#demo==2.0", "--json") == 0
    out, err = capsys.readouterr()
    assert list(json.loads(out)) == [f"{server.url}/simple#demo==2.0"]
    assert "as published" in err
    wheel = index / "demo" / "demo-2.0+rocm7.2-py3-none-any.whl"
    url = f"{server.url}/simple/demo/{quote(wheel.name)}"
    assert cairn_wheel("verify", url) == 0
    assert "which nobody has named" in capsys.readouterr().err
    assert cairn_wheel("verify", f"{url}#sha256={'0' * 64}") == 5
    assert "has other bytes: sha256" in capsys.readouterr().err
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    assert cairn_wheel("verify", f"{server.url}/simple#demo==2.0") == 5
    assert cairn_wheel("verify", url) == 7


@pytest.mark.parametrize(
    ("fragment", "code", "message"),
    [
        (f"egg=demo&sha256={'0' * 64}", 5, "has other bytes: sha256"),
        ("{sha256}&egg=demo", 7, "as published"),
        (f"SHA256={'0' * 64}", 2, "names no sha256"),
        (f"sha512={'0' * 128}", 2, "names no sha256"),
        ("sha256=abc", 2, "names no sha256"),
        ("demo==1.0", 2, "names no sha256"),
    ],
)
def test_a_hash_is_compared_however_it_is_named(
    large: Path,
    url: str,
    fragment: str,
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    digest = hashlib.sha256(large.read_bytes()).hexdigest()
    for place in (url, large.as_uri()):
        assert cairn_wheel("verify", f"{place}#{fragment.format(sha256=f'sha256={digest}')}") == code
        assert message in capsys.readouterr().err


def test_the_hash_of_an_index_on_disk_is_compared(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn_wheel("verify", f"{index}#demo==2.0") == 0
    assert "as published" in capsys.readouterr().err
    wheel = index / "demo" / "demo-2.0+rocm7.2-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    assert cairn_wheel("verify", f"{index}#demo==2.0") == 5
    assert "has other bytes: sha256" in capsys.readouterr().err


def test_a_yanked_wheel_is_taken_where_there_is_no_other(
    server: RangeServer, index: Path, shown: Callable[[str], dict[str, object]]
) -> None:
    page = index / "demo" / "index.html"
    lines = page.read_text().splitlines()
    page.write_text("\n".join(
        line.replace("<a ", '<a data-yanked="" ') if "rocm7.2" in line else line for line in lines
    ))  # fmt: skip
    assert shown(f"{server.url}/simple#demo==2.0")["version"] == "2.0+rocm7.1"
    assert shown(f"{server.url}/simple#demo==2.0+rocm7.2")["version"] == "2.0+rocm7.2"


def test_a_file_that_no_index_named_is_missing(
    server: RangeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn_wheel("verify", f"{server.url}/demo-1.0-py3-none-any.whl") == 5
    assert "error: there is no http" in (err := capsys.readouterr().err)
    assert "index" not in err


def cut_to_half(_number: int, answer: Answer) -> None:
    answer.body = answer.body[: len(answer.body) // 2]


@pytest.mark.parametrize("fault", [status(404), status(500), cut_to_half, header("Content-Length", "9")])
@pytest.mark.parametrize("verb", ["verify", "show --binaries", "diff --binaries"])
def test_no_verdict_comes_of_a_download_that_is_not_whole(
    server: RangeServer, url: str, fault: Fault, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_downloads(number: int, answer: Answer) -> None:
        if not server.requests[-1][1]:
            fault(number, answer)

    server.fault = on_downloads
    command, *options = verb.split()
    words = [command, url, url, *options] if command == "diff" else ["wheel", command, url, *options]
    assert main(words) in (5, 7)
    out, err = capsys.readouterr()
    findings = "1 finding\n" in out  # a file of nine bytes has one
    assert (findings, err.count("error: ")) in ((True, 0), (False, 1))
    assert findings or out == ""


def diff(*words: object) -> int:
    return main(["diff", *map(str, words)])


def test_wheels_are_compared_where_they_lie(
    server: RangeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = wheel_files()
    old = build_wheel(tmp_path / "a", files=files, tags=LINUX)
    new = build_wheel(tmp_path / "b", files=files | wheel_files(version="2") | {"demo/n": b"n"}, tags=LINUX)
    urls = [f"{server.url}/{path.relative_to(tmp_path)}" for path in (old, new)]
    texts = []
    for pair in (urls, [old, urls[1]], [urls[0], new]):
        assert diff(*pair) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert "+ file demo/n\n~ file demo-*.dist-info/RECORD\n~ file demo/kernels/a_gfx1100" in texts[0]
    assert f"not read {old.name}: its libraries, kernels and Python names" in texts[0]
    assert "the same: 8 by the hashes in RECORD, 0 by size and CRC-32" in texts[0]
    assert "symbol" not in texts[0]
    assert diff(urls[0], urls[0]) == 0
    assert capsys.readouterr().out.startswith("no difference in what was read\nnot read demo-1.0")
    assert server.sent < old.stat().st_size
    assert diff(*urls, "--binaries", "--json", "--no-python") == 0
    whole = json.loads(capsys.readouterr().out)
    assert diff(old, new, "--json", "--no-python") == 0
    assert whole == json.loads(capsys.readouterr().out)
    assert diff(old, new, urls[0], "--json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["after"], second["after"]) == (new.name, old.name)
    assert (first["changed"], second["changed"]) == (
        ["demo-*.dist-info/RECORD", "demo/kernels/a_gfx1100.hsaco"],
        [],
    )


@pytest.mark.parametrize(
    ("own", "taken"),
    [
        ("cp27-cp27mu-manylinux_2_28_x86_64", "cp27-cp27mu-manylinux1_x86_64"),  # of another glibc
        ("cp26-cp26mu-linux_x86_64", "cp26-cp26mu-manylinux1_x86_64"),
        ("cp27-cp27mu-musllinux_1_2_x86_64", None),
        ("cp27-cp27mu-manylinux1_aarch64", None),
    ],
)
def test_an_index_is_asked_for_the_wheel_that_is_like_ones_own(
    server: RangeServer,
    index: Path,
    tmp_path: Path,
    own: str,
    taken: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wheel = build_wheel(tmp_path / "own", version="1.0", tags=(own,))
    for place in (f"{server.url}/simple", index):
        status = diff(f"{place}#demo==1.0", wheel, "--json", "--no-python")
        out, err = capsys.readouterr()
        if taken:
            assert status == 0
            assert json.loads(out)["before"] == f"demo-1.0-{taken}.whl"
        else:
            assert status == 2
            assert f"none is for {wheel.name}" in err


def test_a_hash_in_record_tells_what_size_and_crc_do_not(
    server: RangeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CRC-32 is no hash: two contents of one size and CRC are easily made."""
    old = build_wheel(tmp_path / "a", files={"demo/a.bin": b"plumless"})
    new = build_wheel(tmp_path / "b", files={"demo/a.bin": b"buckeroo"})
    assert diff(*(f"{server.url}/{path.relative_to(tmp_path)}" for path in (old, new))) == 0
    assert "~ file demo/a.bin" in capsys.readouterr().out


def test_names_of_files_tell_targets() -> None:
    names = (
        "torch/.kpack/torch_gfx942.kpack",
        "torch/lib/aotriton.images/amd-gfx950/a.aks2",
        "_rocm_sdk_libraries/lib/rocblas/library/TensileLibrary_gfx90a.dat",
        "torch/include/gfx1201.h",  # says nothing of what is in the wheel
        "aiter/hsa/gfx9999/a.co",
        "aiter/hsa/gfx1151/a.co",
    )
    assert named_targets(names) == ("gfx90a", "gfx942", "gfx950", "gfx1151")


def test_metadata_without_a_sidecar_is_read_from_the_wheel(server: RangeServer, url: str) -> None:
    file = published.find(url)
    assert not isinstance(file, Path)
    data = published.metadata(file)
    assert data is not None
    assert data.startswith(b"Metadata-Version: 2.4\nName: demo\n")
    server.ranges = False
    assert published.metadata(file) is None


def test_an_address_that_leads_from_https_to_http_is_refused(
    server: RangeServer,
    large: Path,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    certificate = tmp_path / "localhost.pem"
    certificate.write_bytes(certificate_of_localhost())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    web._opener.cache_clear()  # it has read the certificates of the system
    try:
        with serving_ranges(large.parent, certificate=certificate) as secure:
            assert cairn_wheel("show", f"{secure.url}/{quote(large.name)}") == 0
            capsys.readouterr()

            def downgrade(_number: int, answer: Answer) -> None:
                answer.status, answer.body = 302, b""
                answer.headers = {"Location": url, "Content-Length": "0"}

            secure.fault = downgrade
            for verb in ("show", "verify"):
                assert cairn_wheel(verb, f"{secure.url}/{quote(large.name)}") == 5
                out, err = capsys.readouterr()
                assert out == ""
                assert "it redirects from https: to http:" in err
        assert server.requests == []
    finally:
        web._opener.cache_clear()


def _matches(folder: Path, word: str) -> list[str]:
    """What a shell makes of a word."""
    return [str(path) for path in folder.glob(word)] if "*" in word else [word]


def test_what_the_page_tells_to_type(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With stand-ins for the addresses alone."""
    text = (ROOT / "docs" / "how-to" / "compare-published-wheels.md").read_text(encoding="utf-8")
    for index, version in (("whl-next", "2.14.0+rocm10.1.0"), ("whl/rocm7.14", "2.14.1+rocm7.14")):
        page = tmp_path / index / "torch"
        page.mkdir(parents=True)
        wheel = build_wheel(page, name="torch", version=version, files={"torch/__init__.py": b"1\n"})
        (page / "index.html").write_text(f'<a href="{quote(wheel.name)}">{wheel.name}</a>')
    build_wheel(tmp_path / "wheels", name="torch", version="2.14.0", files={"torch/__init__.py": b"2\n"})
    monkeypatch.chdir(tmp_path)
    lines = " ".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ").splitlines()
    for line in filter(str.strip, lines):
        typed = line.replace("https://stable.repo.amd.com/rocm", server.url)
        typed = typed.replace("https://download.pytorch.org", server.url)
        words = [path for word in shlex.split(typed)[1:] for path in _matches(tmp_path, word)]
        assert main(words) == 0
    out = capsys.readouterr().out
    assert "torch-2.14.0+rocm10.1.0-py3-none-any.whl → torch-2.14.0-py3-none-any.whl" in out
    assert "~ file torch/__init__.py" in out
    assert "torch-2.14.0+rocm10.1.0-py3-none-any.whl: good" in out


def test_record_is_compared_with_the_members(
    server: RangeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = build_wheel(tmp_path, files={"demo/a": b"1", "demo/b": b"2", "demo/c": b"3"})
    altered(wheel, {"demo/a": b"12", "demo/b": None, "demo/d": b"4"})
    assert cairn_wheel("show", f"{server.url}/{wheel.name}", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["record_problems"] == [
        "RECORD does not list demo/d",
        "RECORD lists demo/b, which is not there",
        "RECORD gives demo/a 1 bytes, and it has 2",
    ]
    for word in (f"{server.url}/{wheel.name}", wheel):
        assert cairn_wheel("show", word) == 0
        assert "RECORD does not list demo/d" in capsys.readouterr().out


@pytest.mark.parametrize("options", [(), ("x-1.0-py3-none-any.whl",)])
def test_whom_a_wheel_breaks_is_told_of_two_files_alone(
    url: str, large: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(large if options else url, large, *options, "--consumer", "demo") == 2
    assert "two folders or wheels of this machine" in capsys.readouterr().err


def test_what_is_missing_of_a_comparison_is_named_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        diff("a.whl")
    assert "arguments are required: NEW\n" in capsys.readouterr().err
