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
from cairn.sources import pins
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
    *(DIGITS, f"1.{DIGITS}", DEEP, "[" * 5_000, "a.b" + ".c" * 5_000, "é" * 300),
    *("\0", "\udcff", "\u202e", "\x1b[2J", "\x85", "", " ", "a b c", "\n", "\r\n", "C:\\x"),
    *("junk", "-", "--", "..", "../../x", "/", "%", "%s", "{x}", "{", "a[b", "1e999"),
    *("a==1\nTag: x", "a; sys_platform ~= 'linux'", f"a>={DIGITS}", f"a; {DEEP}", "a @ file:///x"),
    *("::error::x", "##[error]x", "<script>", "NaN", "null", "true", "0", "-1", "[]", "{}", '"', "'"),
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


WHOLE = bool(os.environ.get("CAIRN_TEST_ALL"))  # else a sample
FUZZ = settings(
    max_examples=int(os.environ.get("CAIRN_FUZZ_EXAMPLES", "20" if WHOLE else "10")),
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


WHEEL_COMMANDS = (
    "wheel show WHEEL",
    "wheel verify WHEEL",
    "diff WHEEL WHEEL",
    "diff WHEEL WHEEL",
    "wheel set-version --version 2.0 --output-dir FOLDER/out WHEEL",
    "index publish --store FOLDER/store WHEEL",
    "index check --store FOLDER/store --index staging",
)


def words_of(command: str, **places: Path) -> list[str]:
    """The words of a command, with its places in capitals put in."""
    words = command.split()
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    return words


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
    check(words_of(data.draw(st.sampled_from(WHEEL_COMMANDS)), WHEEL=path, FOLDER=tmp_path))


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


SAMPLE = ROOT / "external-builds" / "sample"
ALLOWED = b'schema = "cairn.patches/1"\n[[patch]]\nproject = "torch"\ncommit = "' + COMMIT.encode() + b'"\n'
# By the name of a file: what is right in it, and the commands that read it as FILE, or what is beside it.
FILES: Mapping[str, tuple[bytes, Sequence[str]]] = {
    "set.json": (
        json.dumps(plain_set()).encode(),
        (
            "test smoke --set FILE --output-dir FOLDER/smoke --find-links FOLDER --targets gfx942",
            "index publish --store FOLDER/store --set FILE FOLDER/none.whl",
        ),
    ),
    "stack.toml": (
        (SAMPLE / "stack.toml").read_bytes(),
        (
            "build --dry-run --stack FILE --targets cpu",
            "manifest create --stack FILE --root-checkout-dir FOLDER --output FOLDER/m",
        ),
    ),
    "manifest.json": (
        b'{"schema": "cairn.manifest/1", "stack": "x", "line": "nightly", "projects": []}',
        ("diff FILE FILE", "manifest checkout FILE", "manifest verify FILE"),
    ),
    "state.json": (
        b'{"schema": "cairn.state/1", "generation": 1, "projects": {"a": "b"}, "sets": {}, "pending": {}}',
        ("index check --store FOLDER/.. --index staging",),
    ),
    "junit.xml": (
        (
            b'<testsuites><testsuite tests="1"><testcase classname="a" name="b" time="1">'
            b'<skipped message="c"/></testcase></testsuite></testsuites>'
        ),
        ("test report FILE", "test report --json FILE"),
    ),
    "allowlist.toml": (
        ALLOWED
        + b'why = "a sentence of ten"\nupstream = "https://h/pull/1"\nowner = "me"\nexpires = 2030-01-01\n',
        ("patches audit --allowlist FILE --stack SAMPLE FOLDER",),
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
    command = data.draw(st.sampled_from(commands))
    check(words_of(command, FILE=path, FOLDER=path.parent, SAMPLE=SAMPLE))


OPTIONS = (
    "wheel set-version --output-dir o WHEEL --version",
    "wheel set-version --output-dir o WHEEL --rocm-version",
    "wheel set-version --output-dir o WHEEL --promote",
    "wheel set-version --output-dir o WHEEL --version 2 --build-number",
    "wheel set-version --output-dir o WHEEL --version 2 --require",
    "wheel verify WHEEL --targets",
    "wheel verify WHEEL --python",
    "wheel verify WHEEL --find-links",
    "wheel verify WHEEL --forbid",
    "wheel repair WHEEL --output-dir o --platform",
    "wheel show",
    "index publish WHEEL --store s --index",
    "index publish WHEEL --store",
    "index publish WHEEL --store s --set set.json --require",
    "index check --store s --index",
    "index serve nothing --port",
    "test smoke --set set.json --targets gfx942 --timeout",
    "test smoke --set set.json --targets",
    "test report none.xml --floor",
    "build --dry-run --stack SAMPLE --targets cpu --line",
    "build --dry-run --stack SAMPLE --targets",
    "build --dry-run --targets cpu --stack",
    "checkout torch --stack",
    "rocm package nothing --output-dir o --version",
    "",
)


@pytest.mark.parametrize("command", OPTIONS)
def test_an_option_with_any_value(tmp_path: Path, command: str) -> None:
    path = wheel(tmp_path, {})
    whole = plain_set()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    whole["wheels"] = [{**plain_set()["wheels"][0], "sha256": digest}]  # type: ignore[index]
    whole["set_id"] = hashlib.sha256(digest.encode()).hexdigest()
    Path("set.json").write_text(json.dumps(whole))
    words = words_of(command, WHEEL=path, SAMPLE=SAMPLE)
    # In the sample each option takes every third piece, and the one below it begins with the next.
    for piece in PIECES if WHOLE else PIECES[OPTIONS.index(command) % 3 :: 3]:
        if "\0" in piece:
            continue  # which no command line can have
        if words and words[-1].startswith("--"):
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
            pins.related_commits,
        ),
        (b"3.5.0\n", lambda path: pins.triton_release(path.parents[2])),
        (COMMIT.encode() + b"\n", lambda path: pins.ci_commit_pin(path.parents[2], "triton")),
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
