"""A stack's recipe: every file of its folder that the stack names or a command reads, under one digest.

Records, judgements and manifests name it by that digest, and a store has its bytes (`cairn.release.recipes`),
so that others can build a night again. One stack has one digest on every machine:

- Text has the line ends of Unix. git writes others on Windows (`core.autocrlf`): a file without a zero byte
  whose lines all end in CR LF, without another CR, counts as if they ended in LF.
- Executable bits are no part of it, since Windows has none. A command of a stack begins with its interpreter.
- A link is refused, and so is a file outside of the folder, and a name that a system cannot have.
- Tests and benchmarks of a tree, of which no wheel is made, are left out.
- Checkouts, hidden files, `__pycache__` and what a `.gitignore` of the repository names are left out, except
  a file or a whole folder that a command reads, and all that is in the folders of smoke tests and of skips.
  The wheels of consumers, which are built elsewhere, and what a stack runs to notify, which decides nothing,
  are left out too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from cairn import datafile, files, isolation, process, shipped
from cairn.errors import CairnError, UsageError
from cairn.platforms import windows
from cairn.stack.model import Stack

SKIPS = "skip-tests"
"""The folder beside a stack.toml with the tests that are left out."""

READ = ("hooks.py", "matrix.toml", "suite.toml", "mirror.lock.toml", SKIPS)
"""What commands read beside a stack.toml, without it naming them."""

_STACK_DIR = "{stack_dir}"
_AFTER_PATH = re.compile(r"[\s\"':;,]|$")
"""What may follow a path in a template, and may also be in its name."""


class Recipe(datafile.Value, tag_field="schema", tag="cairn.recipe/1"):
    """The files of a stack.

    Attributes:
        stack: the name of its stack.toml.
        text: path below its folder, with `/`, to the content of a file in UTF-8.
        binary: path to the content of any other file, in base64.

    Raises:
        UsageError: a path leads out of the folder, or a content is no base64.
    """

    stack: str
    text: Mapping[str, str]
    binary: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        for path in self.contents():
            _refuse_name(path)
        if self.stack not in self.text:
            raise UsageError(f"a recipe lacks its {self.stack}")

    def contents(self) -> dict[str, bytes]:
        """Return path to content of each file."""
        try:
            binary = {path: base64.b64decode(text, validate=True) for path, text in self.binary.items()}
        except binascii.Error as error:
            raise UsageError(f"a recipe has a file that is no base64: {error}") from error
        return {path: text.encode() for path, text in self.text.items()} | binary

    def canonical(self) -> bytes:
        """Return its one spelling: keys sorted, no white space, UTF-8."""
        plain = datafile.to_plain(self)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @property
    def digest(self) -> str:
        """The sha256, in hex, of its one spelling."""
        return hashlib.sha256(self.canonical()).hexdigest()


def of(stack: Stack) -> Recipe:
    """Read the recipe of a stack.

    Raises:
        UsageError: the stack names a link, a file outside of its folder, or one that a system cannot have.
    """
    root = Path(stack.folder)
    text, binary = {}, {}
    for path in sorted(_files(stack)):
        name, data = path.relative_to(root).as_posix(), path.read_bytes()
        _refuse_name(name)
        ends = data.count(b"\r\n")
        if b"\0" not in data and ends == data.count(b"\n") == data.count(b"\r"):
            data = data.replace(b"\r\n", b"\n")
        try:
            text[name] = data.decode()
        except UnicodeDecodeError:
            binary[name] = base64.b64encode(data).decode()
    # macOS writes the parts of a letter apart or together, and finds either.
    spelt = {name: unicodedata.normalize("NFC", name).casefold() for name in (*text, *binary)}
    names = {spelling: name for name, spelling in spelt.items()}
    if alike := [name for name, spelling in spelt.items() if names[spelling] != name]:
        name = alike[0]
        raise UsageError(
            f"{root} has {name} and {names[spelt[name]]}, which are one file on Windows and macOS",
            tip="give one of them another name",
        )
    return Recipe(stack=stack.file, text=text, binary=binary)


def digest_of(stack: Stack) -> str:
    """Return the digest of a stack's recipe; empty for a stack that was read from no file."""
    return of(stack).digest if stack.file else ""


def differences(frozen: Recipe, now: Recipe) -> tuple[str, ...]:
    """Return the files in which two recipes differ, with what became of each since the first."""
    before, after = frozen.contents(), now.contents()
    return tuple(
        f"{name} ({'new' if name not in before else 'gone' if name not in after else 'changed'})"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def write(recipe: Recipe, folder: Path) -> Path:
    """Write the files of a recipe into a new or empty folder; return its stack.toml."""
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", tip="name a new folder for the frozen stack")
    for name, data in recipe.contents().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes(folder / name, data)
    return folder / recipe.stack


def digest_of_files(places: Iterable[Path], pattern: str = "*") -> str | None:
    """Return the digest of test files as they ran, by their paths in `places`; None where there is none.

    Args:
        places: the files and folders.
        pattern: which files of the folders, whose caches and hidden files do not count.
    """
    lines = []
    for place in places:
        for path in place.rglob(pattern) if place.is_dir() else [place]:
            inside = path.relative_to(place) if place.is_dir() else Path(place.name)
            if path.is_file() and not _is_left_out(inside):
                lines.append(f"{inside.as_posix()} {files.sha256_of(path)}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest() if lines else None


def skips_digest(places: Iterable[Path]) -> str | None:
    """Return the digest of lists of tests that are left out; None where there is none."""
    return digest_of_files(places, "*.toml")


def _files(stack: Stack) -> set[Path]:
    root = Path(stack.folder)
    checkouts = {root / project.checkout_dir for project in stack.projects}
    links: set[Path] = set()
    by_place: list[tuple[Path, set[Path]]] = []
    for at in _places(stack, root):
        inside = Path(os.path.relpath(at, root))
        place = root / inside
        if inside.parts[:1] == ("..",) or inside.is_absolute():
            raise UsageError(
                f"{root / stack.file} names {at}, outside of its folder",
                tip=f"move it into {root}: a night freezes this folder alone",
            )
        links |= {path for path in (place, *place.parents) if path.is_symlink() and root in path.parents}
        paths = set()
        for path in place.rglob("*") if place.is_dir() else (place,):
            is_work = _is_left_out(path.relative_to(place)) or not checkouts.isdisjoint(path.parents)
            if not is_work and (path.is_file() or path.is_symlink()):
                paths.add(path)
        by_place.append((place, paths))
    ignored = _ignored(root, stack.file, links.union(*(inside for _, inside in by_place)))
    # git's lists do not keep a command from reading a file or a folder that is ignored as a whole, nor a test
    # run from copying its folder and pytest from running an ignored conftest.py there.
    whole = {root / SKIPS, *(root / os.path.relpath(name, root) for name in stack.smoke_tests)}
    paths = links.union(
        *(inside if place in whole or inside <= ignored else inside - ignored for place, inside in by_place)
    )
    if link := next((path for path in sorted(paths) if path.is_symlink()), None):
        raise UsageError(
            f"{link} is a link, which not every system can check out",
            tip="replace it by a copy of what it leads to",
        )
    return paths


def paths_in(template: str, root: Path) -> Iterator[str]:
    """Yield the files and folders that a template names after `{stack_dir}`, relative to the stack's folder.

    Only the folder tells where a name ends, such as that of `{stack_dir}/a b -O2`: each beginning that exists
    is yielded, or the shortest where none does.
    """
    for text in template.split(_STACK_DIR)[1:]:
        names = [text[: end.start()].strip("/") for end in _AFTER_PATH.finditer(text)]
        yield from [name for name in names if os.path.exists(root / name)] or names[:1]  # noqa: PTH110 - too long


def _places(stack: Stack, root: Path) -> Iterator[Path]:
    """Yield the files and folders that a stack names, and those that commands read beside it."""
    yield root / stack.file
    yield from (root / name for name in READ)
    yield from map(Path, stack.smoke_tests)
    yield from (Path(name) for name in (stack.gate.allow, stack.sdk and stack.sdk.packages) if name)
    origins = [origin for p in stack.projects for origin in (p.origin, *(x.origin for x in p.lines.values()))]
    for tree in {origin.tree for origin in origins if origin and origin.tree}:
        inside = Path(tree, "tree")
        yield Path(tree, "history.toml")
        for path in inside.iterdir() if inside.is_dir() else ():
            if path.name not in shipped.TRIALS and not _is_left_out(Path(path.name)):
                yield path
    for text in _texts(msgspec.to_builtins(stack)):
        for name in paths_in(text, root):
            path = root / name
            # A program or a CMake file reads what lies beside it.
            yield path if path.is_dir() or path.parent == root else path.parent


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def _is_left_out(inside: Path) -> bool:
    return any(part == "__pycache__" or part.startswith(".") for part in inside.parts)


def _ignored(root: Path, stack_file: str, paths: Iterable[Path]) -> set[Path]:
    """Return the files that the repository of a stack ignores; none where no repository has the stack.

    The user's own lists (`core.excludesFile`, .git/info/exclude) do not count: others have different ones.
    """
    settings = ("safe.directory=*", "core.fsmonitor=false", "core.quotePath=false")
    command = ["git", *(word for setting in settings for word in ("-c", setting)), "ls-files", "-z"]
    command += ["--others", "--ignored", "--exclude-per-directory=.gitignore", "--"]
    places = {path.relative_to(root).parts[0] for path in paths}
    variables = isolation.variables(isolation.Isolation.TOOL) | {"GIT_CONFIG_GLOBAL": os.devnull}
    try:
        # git reads the lists of the folders above, too, up to the one that has the repository.
        above = [folder / ".gitignore" for folder in root.parents]
        words = [*command, *sorted(places)]
        ended = process.run(words, cwd=root, env=variables, separate_stderr=True, reads=above)
    except CairnError:  # no git, or no repository
        return set()
    ignored = {root / name for name in ended.output.split("\0") if name}
    # A folder that is ignored as a whole, such as a work folder, says nothing of its files.
    return set() if root / stack_file in ignored else ignored


def _refuse_name(path: str) -> None:
    """Raise `UsageError` for a path that leads out of its folder, or that a system cannot have."""
    # Windows allows the fewest names; `..` is none of them.
    if not all(part and part.isprintable() and not windows.forbidden(part) for part in path.split("/")):
        raise UsageError(f"{path!r} cannot be a file of a stack on every system", tip="give it another name")
