"""A repository of torch's size, with submodules and two release lines, made by `git fast-import`."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LINES = ("release/2.8", "release/2.9")
_COMMITS = 20  # of history before the lines part; each changes a tenth of what is there
_FOLDER = 40  # files in one
_WORDS = [
    f"{a}{b}" for a in ("at", "cuda", "hip", "tensor", "nn", "op") for b in ("_copy", "Stride", "::x", "(i)")
]


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large: files in all, of which a quarter is the root's own, and bytes of one on average."""

    files: int
    submodules: int
    file_bytes: int


def make(folder: Path, size: Size) -> Path:
    """Write the root and its submodules as bare repositories; the root's folder."""
    chance = random.Random(2)  # noqa: S311 - the same repository each time
    folder.mkdir(parents=True)
    own = size.files // 4
    each = (size.files - own) // size.submodules
    commits = {}
    for number in range(size.submodules):
        name = f"kit{number:02}"
        # Every fourth submodule is at a different commit on the second line.
        changed = each // 10 if number % 4 == 0 else 0
        commits[name] = _write(folder / f"{name}.git", _stream(chance, each, changed, size, {}))
    links = [{name: pair[line] for name, pair in commits.items()} for line in (0, 1)]
    _write(folder / "torch.git", _stream(chance, own, own // 20, size, dict(enumerate(links))))
    return folder / "torch.git"


def _write(path: Path, stream: Iterator[bytes]) -> tuple[str, str]:
    """The repository, and the commits of its lines."""
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(path)], check=True)
    with subprocess.Popen(["git", "fast-import", "--quiet"], cwd=path, stdin=subprocess.PIPE) as importer:
        assert importer.stdin is not None  # noqa: S101 - it is a pipe
        importer.stdin.writelines(stream)
    first, second = (
        subprocess.run(
            ["git", "rev-parse", f"refs/heads/{line}"], cwd=path, check=True, capture_output=True, text=True
        ).stdout.strip()
        for line in LINES
    )
    return first, second


def _stream(
    chance: random.Random, files: int, changed: int, size: Size, links: dict[int, dict[str, str]]
) -> Iterator[bytes]:
    main, second = (f"refs/heads/{line}" for line in LINES)
    for number in range(_COMMITS):
        new = range(files * number // _COMMITS, files * (number + 1) // _COMMITS)
        yield _head(main, f"Part {number}")
        again = chance.sample(range(new.start), new.start // 10)
        yield from (_file(chance, name, size) for name in (*new, *sorted(again)))
    yield from _linked(main, links.get(0), fresh=True)
    if not changed:
        yield f"reset {second}\nfrom {main}\n\n".encode()
        return
    yield _head(second, "Second line") + f"from {main}\n".encode()
    yield from (_file(chance, name, size) for name in sorted(chance.sample(range(files), changed)))
    yield from _linked(second, links.get(1), fresh=False)


def _linked(branch: str, links: dict[str, str] | None, *, fresh: bool) -> Iterator[bytes]:
    if links is None:
        return
    if fresh:
        yield _head(branch, "Submodules")
    text = "".join(
        f'[submodule "third_party/{name}"]\n\tpath = third_party/{name}\n\turl = ../{name}.git\n'
        for name in links
    )
    yield f"M 100644 inline .gitmodules\ndata {len(text)}\n{text}\n".encode()
    yield b"M 100644 inline version.txt\ndata 8\n2.9.0a0\n\n"
    for name, commit in links.items():
        yield f"M 160000 {commit} third_party/{name}\n".encode()


def _head(branch: str, message: str) -> bytes:
    who = "committer Up Stream <up@example.invalid> 1700000000 +0000"
    return f"commit {branch}\n{who}\ndata {len(message)}\n{message}\n".encode()


def _file(chance: random.Random, number: int, size: Size) -> bytes:
    path = f"src/part{number // _FOLDER // _FOLDER}/folder{number // _FOLDER}/file{number}.cpp"
    length = chance.randrange(size.file_bytes // 4, size.file_bytes * 7 // 4)
    unique = chance.randbytes(length // 8).hex()
    words = " ".join(chance.choices(_WORDS, k=length // 12))
    text = f"// {unique}\n{words}\n".encode()
    return b"M 100644 inline %s\ndata %d\n%s\n" % (os.fsencode(path), len(text), text)
