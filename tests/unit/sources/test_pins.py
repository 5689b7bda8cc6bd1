"""Pins are read strictly: the right commit, or an error that names file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cairn.errors import SourceError
from cairn.sources import pins

VISION = "04d8fc4ae648ab5bfb12870bc579c772da843e73"
APEX = "267d3973d0774ada55eaf1092a82c0d2a9bba78d"
OTHER = "1" * 40
REAL = f"""\
ubuntu|pytorch|apex|master|{APEX}|https://github.com/ROCm/apex
ubuntu|pytorch|torchvision|release/0.20|{VISION}|https://github.com/ROCm/vision
centos|pytorch|apex|master|{APEX}|https://github.com/ROCm/apex
centos|pytorch|torchvision|release/0.20|{VISION}|https://github.com/ROCm/vision
"""


def torch_with(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def test_a_real_file(tmp_path: Path) -> None:
    pin = pins.related_commit(torch_with(tmp_path, "related_commits", REAL), "torchvision")
    assert pin == pins.Pin(
        commit=VISION,
        origin="https://github.com/ROCm/vision",
        where=f"{tmp_path / 'related_commits'}:2",
    )


def test_comments_blank_lines_and_windows_line_ends(tmp_path: Path) -> None:
    text = "# os|source\n\n" + REAL
    pin = pins.related_commit(
        torch_with(tmp_path, "related_commits", b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()),
        "torchvision",
    )
    assert pin is not None
    assert (pin.commit, pin.where.rpartition(":")[2]) == (VISION, "4")


LINE = "{}|pytorch|torchaudio|main|{}|../audio.git\n"


@pytest.mark.parametrize(
    ("there", "system", "taken"),
    [
        (("centos", "ubuntu"), "ubuntu", "ubuntu"),
        (("centos", "ubuntu"), "centos", "centos"),
        (("centos", "ubuntu"), "debian", "ubuntu"),
        (("centos", "ubuntu"), "windows", "ubuntu"),
        (("windows", "ubuntu"), "windows", "windows"),
    ],
)
def test_the_records_of_this_system_count_else_ubuntus(
    tmp_path: Path, there: tuple[str, ...], system: str, taken: str
) -> None:
    commits = dict(zip(there, (OTHER, VISION), strict=True))
    torch_with(tmp_path, "related_commits", "".join(LINE.format(os, commits[os]) for os in there))
    pin = pins.related_commit(tmp_path, "torchaudio", system=system)
    assert pin is not None
    assert pin.commit == commits[taken]


@pytest.mark.parametrize("system", ["ubuntu", "debian", "windows"])
def test_records_of_other_systems_are_an_error_that_lists_them(tmp_path: Path, system: str) -> None:
    torch_with(tmp_path, "related_commits", LINE.format("centos", OTHER) + LINE.format("macos", VISION))
    with pytest.raises(pins.OtherSystemError) as error:
        pins.related_commit(tmp_path, "torchaudio", system=system)
    for part in (system, "ubuntu", "centos", OTHER[:12], "macos", VISION[:12], "line 2"):
        assert part in str(error.value)
    assert pins.related_commit(tmp_path, "torchvision", system=system) is None


def test_no_file_and_no_record_are_no_pin(tmp_path: Path) -> None:
    assert pins.related_commit(tmp_path, "torchvision") is None
    assert pins.related_commit(torch_with(tmp_path, "related_commits", REAL), "torchaudio") is None
    assert pins.ci_commit_pin(tmp_path, "triton") is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ubuntu|pytorch|torchvision|main|" + VISION, "has 5 fields"),
        ("ubuntu|pytorch|torchvision|main|" + VISION + "|url|more", "has 7 fields"),
        ("ubuntu||torchvision|main|" + VISION + "|url", "has no source"),
        ("ubuntu|pytorch|torchvision|main|04d8fc4|url", "not a full commit id"),
        ("ubuntu|pytorch|torchvision|main|" + VISION.upper() + "|url", "not a full commit id"),
        ("ubuntu|pytorch|torchvision|main|" + VISION + "|u rl", "white space in origin"),
        ("ubuntu|pytorch|torchvision|main|" + VISION + "|--upload-pack=x", "is not a valid origin"),
        ("<<<<<<< HEAD", "merge conflict marker"),
        ("=======", "merge conflict marker"),
        (">>>>>>> theirs", "merge conflict marker"),
        (
            f"ubuntu|pytorch|torchvision|main|{OTHER}|https://github.com/ROCm/vision",
            "a different commit or origin of torchvision than line 2",
        ),
    ],
)
@pytest.mark.parametrize("wanted", ["torchvision", "torchaudio"])
def test_a_bad_line_is_named_whatever_is_asked_for(
    tmp_path: Path, line: str, reason: str, wanted: str
) -> None:
    folder = torch_with(tmp_path, "related_commits", REAL + line + "\n")
    with pytest.raises(SourceError, match=rf"related_commits:5: .*{re.escape(reason)}"):
        pins.related_commit(folder, wanted)


def test_a_malformed_first_line_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"related_commits:1: has 1 fields"):
        pins.related_commit(torch_with(tmp_path, "related_commits", "nonsense\n" + REAL), "torchvision")


def test_text_in_another_encoding(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not UTF-8"):
        pins.related_commit(torch_with(tmp_path, "related_commits", REAL.encode("utf-16")), "torchvision")


def test_a_ci_pin(tmp_path: Path) -> None:
    torch_with(tmp_path, ".ci/docker/ci_commit_pins/triton.txt", f"# why\r\n\r\n{VISION}\r\n")
    pin = pins.ci_commit_pin(tmp_path, "triton")
    assert pin is not None
    assert (pin.commit, pin.origin) == (VISION, None)
    assert pin.where.endswith("triton.txt:3")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ":1: is empty"),
        ("main\n", ":1: 'main' is not a full commit id"),
        (f"{VISION}\n{OTHER}\n", ":2: holds a second entry"),
        (f"<<<<<<< HEAD\n{VISION}\n=======\n{OTHER}\n>>>>>>> x\n", ":1: is a merge conflict marker"),
    ],
)
def test_a_bad_ci_pin(tmp_path: Path, text: str, reason: str) -> None:
    torch_with(tmp_path, ".ci/docker/ci_commit_pins/triton.txt", text)
    with pytest.raises(SourceError, match=re.escape(reason)):
        pins.ci_commit_pin(tmp_path, "triton")


@pytest.mark.parametrize(("text", "branch"), [("3.5.0\n", "release/3.5.x"), ("3.10.1", "release/3.10.x")])
def test_the_release_branch_of_triton(tmp_path: Path, text: str, branch: str) -> None:
    assert pins.triton_release(torch_with(tmp_path, ".ci/docker/triton_version.txt", text)) == branch


@pytest.mark.parametrize("text", ["", "three\n", "3.5.0\n3.6.0\n", "<<<<<<< HEAD\n3.5.0\n"])
def test_a_bad_triton_version(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceError, match=r"triton_version\.txt:\d+: "):
        pins.triton_release(torch_with(tmp_path, ".ci/docker/triton_version.txt", text))


_commits = st.text("0123456789abcdef", min_size=40, max_size=40)
_words = st.text("abcdefghijklmnopqrstuvwxyz./-_0123456789", min_size=1, max_size=12).filter(
    lambda text: not text.startswith("-")
)
_records = st.tuples(
    st.sampled_from(["ubuntu", "centos", "debian"]),
    _words,
    st.sampled_from(["torchvision", "apex"]),
    _words,
    _commits,
    _words,
).map("|".join)
_noise = st.one_of(
    _records,
    st.text(max_size=60),
    st.sampled_from(
        ["", "# comment", "<<<<<<< HEAD", "=======", ">>>>>>> a", "|||||||", "\t", "a|b|c|d|e|f", "\x0c"]
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=st.lists(_noise, max_size=8), end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_whatever_is_in_the_file_it_is_a_pick_of_a_whole_record_or_an_error(
    tmp_path: Path, lines: list[str], end: str
) -> None:
    torch_with(tmp_path, "related_commits", end.join(lines).encode("utf-8", "surrogatepass"))
    try:
        pin = pins.related_commit(tmp_path, "torchvision", system="debian")
    except SourceError as error:
        assert str(tmp_path / "related_commits") in str(error)  # noqa: PT017 - most inputs raise nothing
        return
    assert not any(re.match(r"(<{7}|>{7})", line) for line in lines)
    whole = [line.strip(" \t").split("|") for line in lines if not line.strip(" \t").startswith("#")]
    ours = [[f.strip() for f in fields] for fields in whole if len(fields) == 6]
    candidates = [f for f in ours if f[2] == "torchvision"]
    mine = [f for f in candidates if f[0] == "debian"] or [f for f in candidates if f[0] == "ubuntu"]
    assert bool(mine) == bool(candidates)  # else it is an error
    assert (pin is None) == (not mine)
    if pin is not None:
        assert (pin.commit, pin.origin) == (mine[0][4], mine[0][5])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(max_size=200))
def test_no_bytes_crash_a_reader(tmp_path: Path, data: bytes) -> None:
    torch_with(tmp_path, "related_commits", data)
    torch_with(tmp_path, ".ci/docker/ci_commit_pins/triton.txt", data)
    torch_with(tmp_path, ".ci/docker/triton_version.txt", data)
    for read in (
        lambda: pins.related_commit(tmp_path, "torchvision"),
        lambda: pins.ci_commit_pin(tmp_path, "triton"),
        lambda: pins.triton_release(tmp_path),
    ):
        try:
            read()
        except SourceError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017 - some inputs raise nothing


_quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
_ends = st.sampled_from(["\n", "\r\n", "\r"])
_quiet = st.sampled_from(["", "  ", "\t", "# a comment", "#|a|b|c|d|e"])


@st.composite
def _merged(draw: st.DrawFn) -> list[str]:
    """What git leaves of a file whose sides name other commits."""
    ours, theirs = draw(st.lists(_records, min_size=1, max_size=3)), draw(st.lists(_records, max_size=3))
    base = ["||||||| base", *draw(st.lists(_records, max_size=2))] if draw(st.booleans()) else []
    conflict = ["<<<<<<< HEAD", *ours, *base, "=======", *theirs, ">>>>>>> topic"]
    return [*draw(st.lists(_records, max_size=2)), *conflict, *draw(st.lists(_records, max_size=2))]


@_quick
@given(lines=_merged(), end=_ends)
def test_of_a_file_in_conflict_nothing_is_picked(tmp_path: Path, lines: list[str], end: str) -> None:
    torch_with(tmp_path, "related_commits", end.join(lines))
    with pytest.raises(SourceError, match=r"related_commits:\d+: "):
        pins.related_commit(tmp_path, "torchvision")


@_quick
@given(copies=st.lists(st.one_of(st.none(), _quiet), min_size=1, max_size=12), end=_ends)
def test_a_record_that_is_repeated_is_one_record(tmp_path: Path, copies: list[str | None], end: str) -> None:
    record = f"ubuntu | pytorch|torchvision |main|{VISION}|https://github.com/ROCm/vision"
    lines = [record if text is None else text for text in copies]
    torch_with(tmp_path, "related_commits", end.join(lines))
    pin = pins.related_commit(tmp_path, "torchvision")
    assert (pin is None) == (None not in copies)
    if pin is not None:
        assert (pin.commit, pin.where.rpartition(":")[2]) == (VISION, str(copies.index(None) + 1))


@_quick
@given(lines=st.lists(st.one_of(_commits, _quiet, st.text(max_size=45)), max_size=4), end=_ends)
def test_a_ci_pin_is_the_only_entry_or_an_error(tmp_path: Path, lines: list[str], end: str) -> None:
    torch_with(
        tmp_path, ".ci/docker/ci_commit_pins/triton.txt", end.join(lines).encode("utf-8", "surrogatepass")
    )
    try:
        pin = pins.ci_commit_pin(tmp_path, "triton")
    except SourceError as error:
        assert "triton.txt" in str(error)  # noqa: PT017 - some inputs raise nothing
        return
    assert pin is not None
    said = [text.strip(" \t") for text in re.split(r"\r\n|\n|\r", end.join(lines))]
    assert [text for text in said if text.lstrip("\ufeff") and not text.startswith("#")] == [pin.commit]


@_quick
@given(
    text=st.one_of(st.text(max_size=20), st.from_regex(r"\d{1,3}(\.\d{1,3}){0,3}", fullmatch=True)), end=_ends
)
def test_a_triton_version_is_that_of_the_file_or_an_error(tmp_path: Path, text: str, end: str) -> None:
    data = (text + end).encode("utf-8", "surrogatepass")
    torch_with(tmp_path, ".ci/docker/triton_version.txt", data)
    try:
        branch = pins.triton_release(tmp_path)
    except SourceError as error:
        assert "triton_version.txt:" in str(error) or "not UTF-8" in str(error)  # noqa: PT017
        return
    assert re.fullmatch(r"release/\d+\.\d+\.x", branch)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)+", text):
        major, minor = text.split(".")[:2]
        assert branch == f"release/{int(major)}.{int(minor)}.x"
