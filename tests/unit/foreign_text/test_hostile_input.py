"""Whatever is in a file or on the command line, every command answers with an exit code that is documented.

The commands run in this process, below the guard at the top: what that would have to catch fails here.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cairn import datafile
from cairn.cli.main import main
from cairn.errors import CairnError
from cairn.sources import checkout_stack
from cairn.testing.record import TestRecord
from helpers.packing import write_wheel

ROOT = Path(__file__).parents[3]
CODES = {
    int(line.split("|")[1])
    for line in (ROOT / "docs/reference/exit-codes.md").read_text().splitlines()
    if re.match(r"\| \d+ \|", line)
}
INTERNAL = 12
INFO = "demo-1.0.dist-info"
DIGITS = "9" * 5_000
DEEP = "(" * 3_000 + "python_version > '3'" + ")" * 3_000
COMMIT = "0123456789" * 4

# What has no business anywhere, and a few things that have.
PIECES = (
    *(
        DIGITS,
        f"1.{DIGITS}",
        DEEP,
        "[" * 5_000,
        "a.b" + ".c" * 5_000,
        "\0",
        "\udcff",
        "\u202e",
        "\x1b[2J",
        "\x85",
    ),
    *(
        "junk",
        "",
        " ",
        "-",
        "--",
        "a b c",
        "..",
        "../../x",
        "/",
        "C:\\x",
        "%",
        "%s",
        "{x}",
        "{",
        "\n",
        "\r\n",
    ),
    *(
        "a==1\nTag: x",
        "a; sys_platform ~= 'linux'",
        f"a>={DIGITS}",
        f"a; {DEEP}",
        "a @ file:///x",
        "a[b",
        "1e999",
    ),
    *(
        "::error::x",
        "##[error]x",
        "<script>",
        "NaN",
        "null",
        "true",
        "0",
        "-1",
        "[]",
        "{}",
        '"',
        "'",
        "é" * 300,
    ),
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))


def answer(words: Sequence[object]) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main([str(word) for word in words])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    return code, said.getvalue()


def check(words: Sequence[object]) -> int:
    code, said = answer(words)
    assert code in CODES - {INTERNAL}, said
    assert "Traceback" not in said
    assert "\x1b[2J" not in said
    if code:
        assert said
    return code


def wheel(folder: Path, members: Mapping[str, bytes]) -> Path:
    return write_wheel(folder, "demo", "1.0", {"demo/__init__.py": b"", **members})


def mutations(good: bytes) -> st.SearchStrategy[bytes]:
    """A file with parts of it replaced by others of its own, by pieces, or cut."""
    piece = st.sampled_from([p.encode("utf-8", "surrogatepass") for p in PIECES]) | st.binary(max_size=8)
    words = re.findall(rb"[\w.]+|\W", good)

    def put_together(changes: Sequence[tuple[int, bytes, bool]]) -> bytes:
        new = list(words)
        for at, data, keep in changes:
            place = at % len(new)
            new[place] = new[place] + data if keep else data
        return b"".join(new)

    change = st.tuples(st.integers(0, len(words) - 1), piece, st.booleans())
    return st.lists(change, min_size=1, max_size=3).map(put_together) | st.integers(0, len(good)).map(
        lambda at: good[:at]
    )


FUZZ = settings(
    max_examples=int(os.environ.get("CAIRN_FUZZ_EXAMPLES", "20")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
METADATA = (
    b"Metadata-Version: 2.4\nName: demo\nVersion: 1.0\nRequires-Python: >=3.9\n"
    b"Requires-Dist: a (>=1.0) ; extra == 'x'\n"
    b"Provides-Extra: x\nLicense-File: LICENSE\nDynamic: Version\n\nText\n"
)
WHEEL = b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\nBuild: 1\n"
RECORD = (
    f"demo/__init__.py,sha256={'a' * 43},0\n{INFO}/METADATA,,\n{INFO}/WHEEL,,\n{INFO}/RECORD,,\n".encode()
)
ENTRIES = b"[console_scripts]\ndemo = demo:main\n[other]\na=b:c [d]\n"


def wheel_commands(path: Path) -> list[list[object]]:
    store = path.parent / "store"
    return [
        ["wheel", "show", path],
        ["wheel", "verify", path],
        ["wheel", "diff", path, path],
        ["wheel", "set-version", "--version", "2.0", "--output-dir", path.parent / "out", path],
        ["index", "publish", "--store", store, path],
        ["index", "audit", "--store", store, "--channel", "staging"],
    ]


@pytest.mark.parametrize(
    ("name", "good"),
    [("METADATA", METADATA), ("WHEEL", WHEEL), ("RECORD", RECORD), ("entry_points.txt", ENTRIES)],
)
@FUZZ
@given(data=st.data())
def test_a_wheel_with_any_account_of_itself(
    tmp_path: Path, name: str, good: bytes, data: st.DataObject
) -> None:
    made = {f"{INFO}/{name}": data.draw(mutations(good))}
    path = wheel(tmp_path, made)
    check(data.draw(st.sampled_from(wheel_commands(path))))


def plain_set() -> dict[str, object]:
    digest = hashlib.sha256(b"").hexdigest()
    one = {
        "distribution": "demo",
        "version": "1.0",
        "file_name": "demo-1.0-py3-none-any.whl",
        "sha256": digest,
        "size": 0,
        "metadata_sha256": digest,
        "targets": ["cpu"],
    }
    return {
        "schema": "cairn.set/1",
        "set_id": hashlib.sha256(digest.encode()).hexdigest(),
        "manifest_sha256": digest,
        "stack": "x",
        "python": "3.11",
        "platform": "linux_x86_64",
        "family": "cpu",
        "targets": ["cpu"],
        "wheels": [one],
        "requirements": ["demo"],
    }


STACK = (ROOT / "external-builds" / "sample" / "stack.toml").read_bytes()
FILES: Mapping[str, tuple[bytes, Callable[[Path], list[list[object]]]]] = {
    "set.json": (
        json.dumps(plain_set()).encode(),
        lambda path: [
            [
                "test",
                "smoke",
                "--set",
                path,
                "--output-dir",
                path.parent / "smoke",
                "--find-links",
                path.parent,
                "--targets",
                "gfx942",
            ],
            ["index", "publish", "--store", path.parent / "store", "--set", path, path.parent / "none.whl"],
        ],
    ),
    "stack.toml": (
        STACK,
        lambda path: [
            ["build", "plan", "--stack", path, "--targets", "cpu"],
            [
                "manifest",
                "create",
                "--stack",
                path,
                "--root-checkout-dir",
                path.parent,
                "--output",
                path.parent / "m",
            ],
        ],
    ),
    "manifest.json": (
        b'{"schema": "cairn.manifest/1", "stack": "x", "line": "nightly", "projects": []}',
        lambda path: [
            ["manifest", "diff", path, path],
            ["manifest", "checkout", path],
            ["manifest", "verify", path],
        ],
    ),
    "state.json": (
        b'{"schema": "cairn.state/1", "generation": 1, "projects": {"a": "b"}, "sets": {}, "pending": {}}',
        lambda path: [["index", "audit", "--store", path.parent.parent, "--channel", "staging"]],
    ),
    "junit.xml": (
        (
            b'<testsuites><testsuite tests="1"><testcase classname="a" name="b" time="1">'
            b'<skipped message="c"/></testcase></testsuite></testsuites>'
        ),
        lambda path: [["test", "report", path], ["test", "report", "--json", path]],
    ),
    "allowlist.toml": (
        b'schema = "cairn.patches/1"\n[[patch]]\nproject = "torch"\ncommit = "' + COMMIT.encode() + b'"\n'
        b'why = "a sentence of ten"\nupstream = "https://h/pull/1"\nowner = "me"\nexpires = 2030-01-01\n',
        lambda path: [
            ["patches", "audit", "--allowlist", path, "--stack", ROOT / "external-builds/sample", path.parent]
        ],
    ),
}


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(data=st.data())
def test_a_file_with_anything_in_it(tmp_path: Path, name: str, data: st.DataObject) -> None:
    good, commands = FILES[name]
    path = tmp_path / ("staging" if name == "state.json" else "") / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data.draw(mutations(good)))
    check(data.draw(st.sampled_from(commands(path))))


OPTIONS: Mapping[str, list[object]] = {
    "set-version --version": ["wheel", "set-version", "--output-dir", "o", "WHEEL", "--version"],
    "set-version --rocm-version": ["wheel", "set-version", "--output-dir", "o", "WHEEL", "--rocm-version"],
    "set-version --promote": ["wheel", "set-version", "--output-dir", "o", "WHEEL", "--promote"],
    "set-version --build-number": [
        *("wheel", "set-version", "--output-dir", "o", "WHEEL", "--version", "2", "--build-number"),
    ],
    "set-version --require": [
        "wheel",
        "set-version",
        "--output-dir",
        "o",
        "WHEEL",
        "--version",
        "2",
        "--require",
    ],
    "verify --targets": ["wheel", "verify", "WHEEL", "--targets"],
    "verify --python": ["wheel", "verify", "WHEEL", "--python"],
    "verify --sibling": ["wheel", "verify", "WHEEL", "--sibling"],
    "verify --find-links": ["wheel", "verify", "WHEEL", "--find-links"],
    "verify --forbid": ["wheel", "verify", "WHEEL", "--forbid"],
    "repair --platform": ["wheel", "repair", "WHEEL", "--output-dir", "o", "--platform"],
    "show": ["wheel", "show"],
    "publish --channel": ["index", "publish", "WHEEL", "--store", "s", "--channel"],
    "publish --store": ["index", "publish", "WHEEL", "--store"],
    "publish --require": ["index", "publish", "WHEEL", "--store", "s", "--set", "set.json", "--require"],
    "audit --channel": ["index", "audit", "--store", "s", "--channel"],
    "serve --port": ["index", "serve", "nothing", "--port"],
    "smoke --timeout": ["test", "smoke", "--set", "set.json", "--targets", "gfx942", "--timeout"],
    "smoke --targets": ["test", "smoke", "--set", "set.json", "--targets"],
    "report --floor": ["test", "report", "none.xml", "--floor"],
    "plan --line": [
        "build",
        "plan",
        "--stack",
        ROOT / "external-builds" / "sample",
        "--targets",
        "cpu",
        "--line",
    ],
    "plan --targets": ["build", "plan", "--stack", ROOT / "external-builds" / "sample", "--targets"],
    "plan --stack": ["build", "plan", "--targets", "cpu", "--stack"],
    "checkout --stack": ["checkout", "torch", "--stack"],
    "package --version": ["rocm", "package", "nothing", "--output-dir", "o", "--version"],
    "nothing": [],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_with_any_value(tmp_path: Path, name: str) -> None:
    path = wheel(tmp_path, {})
    whole = plain_set()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    whole["wheels"] = [{**plain_set()["wheels"][0], "sha256": digest}]  # type: ignore[index]
    whole["set_id"] = hashlib.sha256(digest.encode()).hexdigest()
    Path("set.json").write_text(json.dumps(whole))
    words = [path if word == "WHEEL" else word for word in OPTIONS[name]]
    for piece in PIECES:
        if "\0" in piece:
            continue  # which no command line can have
        if words and str(words[-1]).startswith("--"):
            check([*words[:-1], f"{words[-1]}={piece}"])
        else:
            check([*words, piece])


def test_the_guard_is_there_and_has_nothing_to_do(tmp_path: Path) -> None:
    path = wheel(tmp_path, {f"{INFO}/METADATA": METADATA + b"Requires-Dist: a; " + DEEP.encode()})
    done = subprocess.run(
        [sys.executable, "-m", "cairn", "wheel", "verify", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 7
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("good", "read"),
    [
        (
            f"ubuntu|pytorch|torch|main|{COMMIT}|https://h/x\ncentos|a|b|c|{COMMIT}|d\n".encode(),
            checkout_stack.related_commits,
        ),
        (b"3.5.0\n", lambda path: checkout_stack.triton_release(path.parents[2])),
        (COMMIT.encode() + b"\n", lambda path: checkout_stack.ci_commit_pin(path.parents[2], "triton")),
        (
            b'{"schema": "cairn.record/1", "set_id": "a", "kind": "smoke", "hardware": [], "counts": {}}',
            lambda path: datafile.read(path, TestRecord),
        ),
    ],
)
@FUZZ
@given(data=st.data())
def test_a_file_of_a_checkout_with_anything_in_it(
    tmp_path: Path, good: bytes, read: Callable[[Path], object], data: st.DataObject
) -> None:
    folder = tmp_path / ".ci" / "docker"
    (folder / "ci_commit_pins").mkdir(parents=True, exist_ok=True)
    text = data.draw(mutations(good))
    for name in ("related", "triton_version.txt", "ci_commit_pins/triton.txt"):
        (folder / name).write_bytes(text)
    with contextlib.suppress(CairnError):
        read(folder / "triton_version.txt")
