"""What pip, uv or installer refuses, `verify` refuses; what it calls unfit to install, one of them refuses.

Good wheels are spoiled, each in a way or two that hypothesis draws: the same ones in every run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cairn.wheels.verify import Expectation, FindingCode, judge
from helpers.installers import Installers
from helpers.packing import pack, record_hash

INFO, DATA = "demo-1.0.dist-info", "demo-1.0.data"
MODULE = {"demo/__init__.py": b"def main(): ...\n"}
POINTS = b"[console_scripts]\ndemo = demo:main\n\n[gui_scripts]\nw = demo:main [x]\n"
GOOD: tuple[dict[str, bytes], ...] = (
    {**MODULE, "demo/data.txt": b"1" * 5000},
    {**MODULE, f"{INFO}/entry_points.txt": POINTS, f"{INFO}/licenses/LICENSE": b"free\n"},
    {
        "demo.py": b"def main(): ...\n",
        f"{DATA}/scripts/tool": b"#!python\nimport demo\n",
        f"{DATA}/data/share/demo/a.txt": b"a\n",
        f"{DATA}/headers/demo.h": b"int x;\n",
        f"{DATA}/purelib/apart.py": b"x = 1\n",
    },
)
METADATA = (
    b"Metadata-Version: 2.4\nName: demo\nVersion: 1.0\nSummary: a demo\nRequires-Python: >=3.9\n"
    b"Requires-Dist: other>=1; extra == 'x'\nProvides-Extra: x\n\nText.\n"
)
WHEEL = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

PIECES = [*" \t\n\r\0\x0b\x1c\x85\u2028\ufeff\udcffé01x-.:=,\"'\\/[];#%*<(", "", "..", "\r\n"]
LINES = {
    "METADATA": (
        "Metadata-Version: 2.4|Metadata-Version: 9.9|Metadata-Version: 1.0|Name: demo|Name: Demo|"
        "Name: other|Name: -|"
        "Version: 1.0|Version: 1.0.0|Version: 2|Version: one|Summary: b|Requires-Python: >=3|"
        "Requires-Python: <3|"
        "Requires-Python: >=3.9,|Requires-Python: 3|Requires-Python: >=3.*|Requires-Dist: a b|"
        "Requires-Dist: a>=1.*|"
        "Requires-Dist: a (>=1)|Requires-Dist: a; b|Requires-Dist: a @ file:///x|Requires-Dist: a[|"
        "Requires-Dist:|"
        "Provides-Extra: -|Provides-Extra: y|License-File: LICENSE|License-File: ../x|Dynamic: Name|"
        "Classifier: a|"
        "License-Expression: junk|License: a|Description: a|Description-Content-Type: x/y|X-Odd: a|Odd|"
        " folded|"
        "Keywords: a, b|Project-URL: a|Author-email: a@b|Platform: any"
    ),
    "WHEEL": (
        "Wheel-Version: 1.0|Wheel-Version: 1.1|Wheel-Version: 1.9|Wheel-Version: 2.0|Wheel-Version: 1|"
        "Wheel-Version:|"
        "Wheel-Version: 0.1|Wheel-Version: x|Root-Is-Purelib: false|Root-Is-Purelib: True|"
        "Root-Is-Purelib: yes|Tag: x|"
        "Root-Is-Purelib:|Tag: py3-none-any|Tag: py2-none-any|Tag:|Build: 1|Generator: a|Odd| folded|"
        "X-Odd: a"
    ),
    "entry_points.txt": (
        "[console_scripts]|[gui_scripts]|[other]|[]|[x|[console_scripts]x|[DEFAULT]|a|a =|a = demo|"
        "a = demo:main|"
        "A = demo:main|a : demo:main|a = demo:main [y, z]|a = demo:main []|a = demo:main [|"
        "a = demo : main|a = demo:a.b|"
        "a = demo:main [.]|a = demo:main [y-z, x-y]|a = demo:main [y ,z]|a[ = demo:main|"
        "a = demo:.x|a = demo:x.|a = de-mo:main|a = demo::main|a = :main|a = demo:|a b = demo:main|"
        "a/b = demo:main|"
        "../a = demo:main|. = demo:main|.. = demo:main|python = demo:main|python3.11 = demo:main|"
        "pip = demo:main|"
        "activate = demo:main|pip3.4 = demo:main|é = demo:main| a = demo:main|# = demo:main|; x|"
        "a = demo:main ; x|"
        "a = demo:main # x|a == demo:main|a = 1|= demo:main|a = démo:main|a = demo:main x|"
        "a.py = demo:main|  b|"
        "a.exe = demo:main|a = %(x)s:main|a = $x:y"
    ),
    "RECORD": (
        f"|demo/__init__.py,,|demo/x.py,,|{INFO}/RECORD,,|{INFO}/RECORD.jws,,|{INFO}/RECORD,,1|a,b,c|"
        f"a,sha256=AAAA,1|a|"
        'a,,|a,,,|"a",,|"a,,|../a,,|/a,,|a\\b,,| ,,|,,|demo/__init__.py,md5=AAAA,1|'
        "demo/__init__.py,sha256=,1|"
        "a,sha256=AAAA,x|a,sha256=AAAA,-1"
    ),
}
PATHS = (
    "../a|/a|a/../../b|a//b|./a|a/./b|a\\b|C:/a|a:b|a\0b|a\nb|a |a.|é|\u202ea|demo/|demo|"
    'demo/__init__.py/x|a/|a,b|a"b|'
    f"CON|A/b|a/B|{'x' * 256}|{'x/' * 2100}a|{DATA}/a|{DATA}/scripts/a|{DATA}/scripts/b/c|{DATA}/odd/a|"
    f"x.data/y|"
    f"{DATA}/data/bin/python|{DATA}/scripts/python3|{DATA}/platlib/demo/x.py|{DATA}/purelib/demo.py|"
    f"{DATA}/scripts/demo|"
    f"{DATA}/data/a|{DATA}/headers/a/b.h|{DATA}/scripts|{DATA}|other-1.data/purelib/x.py|"
    f"Demo-1.0.data/purelib/x.py|"
    "demo-1.0.0.data/scripts/x|a/b.data/c|other-1.dist-info/METADATA|Demo-1.0.dist-info/x|x.dist-info|"
    "a/x.dist-info/y|"
    f"{INFO}/RECORD.jws|{INFO}/RECORD.p7s|{INFO}/INSTALLER|{INFO}/REQUESTED|{INFO}/direct_url.json|"
    f"{INFO}/sub/METADATA|"
    "__pycache__/a.pyc|demo/__pycache__/a.py|bin/demo|demo.pth|.hidden|-x|~a|%s|$HOME"
).split("|")
FOLDERS = [f"{INFO}/", f"{DATA}/", f"{DATA}/scripts/", f"{DATA}/odd/", "demo/", "x.dist-info/"]
INFOS = [
    "Demo-1.0",
    "demo-1.0.0",
    "demo-2",
    "demo",
    "other-1.0",
    "demo_x-1.0",
    "demo-1.0-1",
    "de.mo-1.0",
    "demo-v1.0",
    "DEMO-1.0",
]
NAMES = [
    "demo-1.0-py3-none-any",
    "Demo-1.0-py3-none-any",
    "demo-1.0.0-py3-none-any",
    "demo-2-py3-none-any",
    "demo-1.0-1-py3-none-any",
    "demo-1.0-x-py3-none-any",
    "other-1.0-py3-none-any",
    "demo-1.0-any",
    "demo-1.0-py2.py3-none-any",
    "demo-1.0-py3-none",
    "de_mo-1.0-py3-none-any",
    "demo-v1.0-py3-none-any",
    "demo-1.0+local-py3-none-any",
    "demo-1.0-0a-py3-none-any",
]
RECORDS = (b"", b"\n", b"a,b,c\n", b"\xff", b'"', None)
MODES = (0, 0o100644, 0o100755, 0o120777, 0o040755, 0o644, 0o020644, 0o100000)

# Findings that are an installer's.
OF_INSTALLERS = frozenset(
    (
        *(FindingCode.ARCHIVE, FindingCode.METADATA, FindingCode.CONTENT, FindingCode.NAME_DIFFERS),
        *(FindingCode.VERSION_DIFFERS, FindingCode.WHEEL_HEADER, FindingCode.DATA_FOLDER),
        *(FindingCode.RECORD_MISSING, FindingCode.RECORD_ABSENT),
        *(FindingCode.RECORD_HASH, FindingCode.RECORD_SIZE),
    )
)
# Where `verify` is stricter than all three, and why.
STRICTER = {
    r"is a symbolic link": "it may lead out of site-packages, and pip and uv make a file or a link of it",
    r"does not stay inside the wheel": "`a//b` and `a/./b` are normalised: RECORD names no such file",
    r"the malformed hash 'sha256='": "a second row of the file, of which all three take the one behind it",
    r"RECORD lists a path twice": "which of the two is right, nobody can say",
    r"which is not a header": "all that follows such a line is no header for some readers",
    r"has no single (?:Name|Version)": "an index reads another than an installer",
    r"Wheel-Version says '1.0' and '|Root-Is-Purelib says|Build says": "the format has one, or none",
    r"Wheel-Version says '1.[1-9]'": "nobody knows what that would be: installers warn, and go on",
    r"goes on after its end record": "readers look for that record in different ways",
    r"'(?:a:b|C:/a)' is absolute": "it is a drive on Windows",
    r"is not a wheel tag": "WHEEL must name the tags that the file name does",
    r"METADATA has two Requires-Python": "an index names neither, and installers the first",
    r"RECORD lists it, but it is not in the wheel": "what removes the project looks for it",
    r"file type 0o": "what follows the mode makes a folder, or something worse, of it",
    r"needs a newer ZIP": "others than these three believe it",
    r"in which its readers differ": "an entry of one reader is two of another",
    r"the file name 1.0\+local": "uv takes a local part that METADATA do not have",
    r"is encrypted": "by a bit that these three do not look at",
    r"is one part of several": "its bytes are on another disk, at which these three do not look",
    r"it has version 2, the file name 1.0": "so says the folder's name, by which importlib.metadata finds it",
    r"the two headers of .* contradict each other": "readers believe the one or the other",
}
# Where one of them is stricter than `verify`, and why.
LAXER = {
    r"bin/demo": "the folder for scripts is `bin` in site-packages only where `--target` says so, as here",
}


class Wheel:
    """A wheel in the making: name, members but RECORD, and changes of RECORD and of the archive."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.name = NAMES[0]
        self.members = {**content, f"{INFO}/METADATA": METADATA, f"{INFO}/WHEEL": WHEEL}
        self.of_record: list[Callable[[bytes], bytes | None]] = []
        self.of_archive: list[Callable[[bytearray], None]] = []

    def write(self, folder: Path) -> Path:
        """Write it with a RECORD that is right, but for what was done to that."""
        info = next((name.partition("/")[0] for name in self.members if name.endswith("/WHEEL")), INFO)
        record: bytes | None = f"{info}/RECORD,,\n".encode()
        for name, data in reversed(self.members.items()):
            quoted = '"' + name.replace('"', '""') + '"' if {",", '"', "\n"} & set(name) else name
            row = "" if name.endswith("/") else f"{quoted},{record_hash(data)},{len(data)}\n"
            record = row.encode("utf-8", "surrogateescape") + (record or b"")
        for change in self.of_record:
            record = None if record is None else change(record)
        path = pack(
            folder / f"{self.name}.whl",
            self.members if record is None else {**self.members, f"{info}/RECORD": record},
            record=False,
        )
        archive = bytearray(path.read_bytes())
        for alter in self.of_archive:
            alter(archive)
        path.write_bytes(archive)
        return path


@st.composite
def wheels(draw: st.DrawFn) -> tuple[str, Wheel]:
    """A spoiled wheel, and what was done to it."""
    wheel = Wheel(dict(draw(st.sampled_from(GOOD))))
    kinds = st.sampled_from((of_text, of_text, of_members, of_archive))
    steps = draw(st.lists(kinds, min_size=1, max_size=2))
    return " + ".join(step(draw, wheel) for step in steps), wheel


def of_text(draw: st.DrawFn, wheel: Wheel) -> str:
    file = draw(st.sampled_from(sorted(LINES)))
    at, size = draw(st.integers(0, 400)), draw(st.integers(0, 3))
    new = draw(st.sampled_from(LINES[file].split("|"))).encode() + b"\n"
    piece = draw(st.sampled_from(PIECES)).encode("utf-8", "surrogateescape")

    def with_lines(change: Callable[[list[bytes], int], list[bytes]]) -> Callable[[bytes], bytes]:
        def changed(data: bytes) -> bytes:
            lines = data.splitlines(keepends=True) or [b""]
            return b"".join(change(lines, at % len(lines)))

        return changed

    changes: dict[str, Callable[[bytes], bytes]] = {
        "insert": with_lines(lambda lines, n: [*lines[:n], new, *lines[n:]]),
        "replace": with_lines(lambda lines, n: [*lines[:n], new, *lines[n + 1 :]]),
        "delete": with_lines(lambda lines, n: lines[:n] + lines[n + 1 :]),
        "twice": with_lines(lambda lines, n: lines[: n + 1] + lines[n:]),
        "blank": with_lines(lambda lines, n: [*lines[:n], b"\n", *lines[n:]]),
        "cut": lambda data: data[: at % (len(data) or 1)],
        "piece": lambda data: data[: at % (len(data) or 1)] + piece + data[at % (len(data) or 1) + size :],
        "line ends": lambda data: data.replace(b"\n", b"\r\n" if size else piece),
        "tail": lambda data: data + piece,
    }
    how = draw(st.sampled_from(sorted(changes)))
    if file == "RECORD":
        wheel.of_record.append(changes[how])
    else:
        path = next((name for name in wheel.members if name.endswith(f"/{file}")), f"{INFO}/{file}")
        wheel.members[path] = changes[how](wheel.members.get(path, b""))
    return f"{file}: {how} {at} {size} {new!r} {piece!r}"


def of_members(draw: st.DrawFn, wheel: Wheel) -> str:
    how = draw(st.sampled_from(["add", "rename", "drop", "folder", "record", "name", "info"]))
    path, victim = draw(st.sampled_from(PATHS)), draw(st.sampled_from(sorted(wheel.members)))
    folder, info = draw(st.sampled_from(FOLDERS)), draw(st.sampled_from(INFOS))
    record, name = draw(st.sampled_from(RECORDS)), draw(st.sampled_from(NAMES))
    if how in ("rename", "drop"):
        del wheel.members[victim]
    if how in ("rename", "add"):
        wheel.members[path] = b"" if path.endswith("/") else b"x = 1\n"
    elif how == "folder":
        wheel.members = {folder: b"", **wheel.members}
    elif how == "record":
        wheel.of_record.append(lambda _: record)
    elif how == "name":
        wheel.name = name
    elif how == "info":
        wheel.members = {key.replace(INFO, f"{info}.dist-info"): data for key, data in wheel.members.items()}
    shown = {"add": path, "folder": folder, "record": record, "name": name, "info": info, "drop": victim}
    return f"{how} {shown.get(how, f'{victim} to {path}')}"


def of_archive(draw: st.DrawFn, wheel: Wheel) -> str:
    number, value, at = draw(st.integers(0, 7)), draw(st.integers(0, 255)), draw(st.integers(0, 10_000))
    filler = bytes([value]) * (at % 30)

    def at_header(magic: bytes, offset: int, new: bytes) -> Callable[[bytearray], None]:
        def alter(data: bytearray) -> None:
            if places := [match.start() for match in re.finditer(re.escape(magic), data)]:
                place = places[number % len(places)] + offset
                data[place : place + len(new)] = new

        return alter

    def at_place(data: bytearray) -> None:
        place = at % max(len(data), 1)
        data[place : place + 1] = bytes([value])

    def cut(data: bytearray) -> None:
        del data[at % max(len(data), 1) :]

    def comment(data: bytearray) -> None:
        at_header(b"PK\5\6", 20, b"\3\0")(data)
        data += b"abc"

    # From the version needed to the lengths both headers have the same fields, two bytes further on in one.
    local = at_header(b"PK\3\4", 4 + at % 26, bytes([value]))
    ways: dict[str, tuple[Callable[[bytearray], object], ...]] = {
        "byte": (at_place,),
        "cut": (cut,),
        "before": (lambda data: data.__setitem__(slice(0, 0), filler),),
        "after": (lambda data: data.extend(filler),),
        "comment": (comment,),
        "local": (local,),
        "central": (at_header(b"PK\1\2", 4 + at % 42, bytes([value])),),
        "both": (local, at_header(b"PK\1\2", 6 + at % 26, bytes([value]))),
        "mode": (at_header(b"PK\1\2", 40, MODES[at % len(MODES)].to_bytes(2, "little")),),
    }
    how = draw(st.sampled_from(sorted(ways)))
    wheel.of_archive += ways[how]
    return f"archive: {how} {number} {value} {at}"


def disagreements(folder: Path, count: int, part: int = 0) -> list[str]:
    """Spoil `count` wheels, others in each part; return each on which `verify` alone is of its opinion."""
    numbers = itertools.count()
    good: dict[Path, str] = {}
    lines: list[str] = []

    def ask_all(ask: Installers, path: Path, text: str) -> None:
        findings = judge(path, Expectation()).findings
        if not findings:
            good[path] = text
            refusing = "" if ask.installer(path) else "installer"
            refusing = refusing or ("" if ask.pip(path) else "pip")
            if refusing and not any(re.search(pattern, text) for pattern in LAXER):
                lines.append(f"good, but {refusing} refuses: {text}")
        reasons = [finding.reason for finding in findings if finding.code in OF_INSTALLERS]
        if reasons and ask.installer(path) and ask.pip(path) and ask.uv(path):
            left = [ask.left_by(name) for name in ("pip", "uv", "installer")]
            stricter = any(re.search(pattern, reason) for pattern in STRICTER for reason in reasons)
            if left[0] == left[1] == left[2] and not stricter:
                lines.append(f"{reasons[0]}, but all install it: {text}")

    with Installers(folder / "installed") as ask:

        @seed(part)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(wheels())
        def spoil(drawn: tuple[str, Wheel]) -> None:
            text, wheel = drawn
            try:
                path = wheel.write(folder / str(next(numbers)))
            except (ValueError, OSError):
                return  # zipfile, or the file system, does not write it
            ask_all(ask, path, text)

        spoil()
        lines += [f"good, but uv refuses: {text}" for path, text in good.items() if not ask.uv(path)]
    assert len(good) > count // 20
    return lines


def test_verify_agrees_with_installers(tmp_path: Path) -> None:
    assert disagreements(tmp_path, 500) == []


@pytest.mark.by_hand
@pytest.mark.parametrize("part", range(1, 41))
def test_verify_agrees_with_installers_on_20_000_wheels(tmp_path: Path, part: int) -> None:
    assert disagreements(tmp_path, 500, part) == []
