"""Reading a stack.toml: from a path that a user gave to a `Stack` whose folders and files are absolute.

The release lines are written out: what each changes for each project, by the line's name. Three places of a
stack.toml speak of a line: the stack's own table, an entry of a project for just this line or for a pattern
of lines, and a hashtag with the line's name in it. A stack that contradicts itself is refused: it has an edge
that leads nowhere, or a name twice.
"""

from __future__ import annotations

import fnmatch
import graphlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import datafile, requirements, shipped
from cairn.errors import UsageError
from cairn.output import wording
from cairn.stack.model import Line, Origin, Project, Stack

FILE = "stack.toml"
"""The name of the file that declares a stack; a folder that has one stands for it."""

_LINE = "{line}"  # in a hashtag: the name of the release line
# No ref may have these characters (git help check-ref-format), so that no line has a pattern for its name.
_PATTERN = re.compile(r"[*?\[]")
_NAMESPACE = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", re.ASCII)
_KEY_ID = re.compile("[0-9a-f]{64}")
_VERSION_OF = re.compile(r"\{version:([A-Za-z0-9_-]+)\}")  # see cairn.build.inputs.variables
# A platform tag (PEP 425) without the version of glibc or macOS, which is a matter of who installs.
_PLATFORM = re.compile(r"linux_[a-z0-9_]+|win_(amd64|arm64)|macosx_(x86_64|arm64)")

# What may be empty, besides a field that is so by default: the version file of a project that has none, the
# value of a variable or a setting, and an argument of a command.
_MAY_BE_EMPTY = re.compile(
    r"(.*\.)?(version_file|(environment|cmake)\.\w+\..+|config_settings\..+|(build|machine|notify)\.[1-9]\d*)"
)


def load(path: Path) -> Stack:
    """Read a stack.toml; folders and files it names become absolute.

    A bare name is that of a stack of Cairn's own, unless a file is called so, or a folder with a stack.toml:
    a checkout of torch is a folder called `pytorch` as well.

    Raises:
        UsageError: no such file, not TOML, a field missing, unknown or mistyped, or an edge to nowhere.
    """
    stack_path = path
    if str(path) in shipped.STACKS and not path.is_file() and not (path / FILE).is_file():
        path = shipped.folder(f"stacks/{path}")
    path = path / FILE if path.is_dir() else path
    try:
        data = datafile.parse_toml(path.read_bytes(), name=str(path))
    except FileNotFoundError as error:
        problem = (
            f"the folder {stack_path} has no {FILE}"
            if stack_path.is_dir()
            else f"there is no stack {stack_path}"
        )
        raise UsageError(problem, tip=_meant(stack_path)) from error
    except OSError as error:
        raise UsageError(
            f"cannot read the stack {path}: {error.strerror}", tip="name a stack.toml with --stack"
        ) from error
    stack = datafile.from_plain(data, Stack, name=str(path))
    _check_texts(stack, path)
    stack = _with_lines(stack, path)
    _check(stack, path)
    return _absolute(stack, path.absolute())


def checkouts_folder(stack: Stack) -> Path:
    """Return where checkouts go by default: beside the stack.toml, or here for one of an installed Cairn."""
    folder = Path(stack.folder)
    return Path.cwd() if shipped.is_unpacked(folder) else folder


def _meant(path: Path) -> str:
    """Return a tip for a path without a stack: the stacks beside it, in it and in `external-builds`."""
    path = path.parent if path.name == FILE else path
    # Users leave `external-builds/` out, or are one folder off.
    folders = (path.parent, path, Path("external-builds"), path.parent / "external-builds")
    near = list(dict.fromkeys(p.parent for folder in folders for p in sorted(folder.glob(f"*/{FILE}"))))
    names = wording.nearest(path.name, [candidate.name for candidate in near])
    if likely := [str(candidate) for candidate in near if candidate.name in names]:
        return f"did you mean {' or '.join(likely)}?"
    if shipped_name := wording.nearest(str(path), shipped.STACKS):
        return f"did you mean {' or '.join(shipped_name)}?"
    beside = f"; near it are: {', '.join(map(str, near))}" if near else ""
    return f"name one with --stack{beside}; Cairn's own: {', '.join(shipped.STACKS)}"


def _absolute(stack: Stack, file: Path) -> Stack:
    """The stack with the folders and files that it names beside its file as absolute paths."""
    root = file.parent

    def origin_at(origin: Origin) -> Origin:
        if origin.url and origin.url.startswith(("./", "../")):
            return structs.replace(origin, url=os.path.normpath(root / origin.url))
        return structs.replace(origin, tree=str(root / origin.tree)) if origin.tree else origin

    projects = []
    for project in stack.projects:
        lines = {
            name: structs.replace(line, origin=origin_at(line.origin)) if line.origin else line
            for name, line in project.lines.items()
        }
        projects.append(structs.replace(project, origin=origin_at(project.origin), lines=lines))
    sdk = stack.sdk
    if sdk is not None and sdk.packages is not None:
        sdk = structs.replace(sdk, packages=str(root / sdk.packages))
    return structs.replace(
        stack,
        folder=str(root),
        file=file.name,
        sdk=sdk,
        gate=structs.replace(stack.gate, allow=stack.gate.allow and str(root / stack.gate.allow)),
        smoke_tests=tuple(str(root / folder) for folder in stack.smoke_tests),
        consumers=tuple(
            structs.replace(consumer, wheels=tuple(str(root / wheel) for wheel in consumer.wheels))
            for consumer in stack.consumers
        ),
        projects=tuple(projects),
    )


def _with_lines(stack: Stack, path: Path) -> Stack:
    """The stack with its lines written out in every project.

    Args:
        stack: as it was read.
        path: where from, for messages.

    Raises:
        UsageError: a name of a line is a pattern, or a line is of a project or a line that is not there.
    """
    projects = [p.name for p in stack.projects]
    for line, hashtags in stack.lines.items():
        if _PATTERN.search(line):
            raise UsageError(
                f"{path}: {line!r} is not a name of a release line",
                tip="write each line out; patterns belong in the `lines` of a project",
            )
        for name in hashtags:
            if name not in projects:
                raise UsageError(
                    f"{path}: the line {line} names the project {name!r}, which the stack does not have",
                    tip=wording.did_you_mean(name, projects, what="its projects are"),
                )
    changed = tuple(
        structs.replace(
            project,
            hashtag=project.hashtag.replace(_LINE, stack.line),
            lines=_lines_of(project, stack, path),
        )
        for project in stack.projects
    )
    return structs.replace(stack, projects=changed)


def _lines_of(project: Project, stack: Stack, path: Path) -> dict[str, Line]:
    """What each release line of a stack changes for a project, by the line's name."""
    exact = {name for p in stack.projects for name in p.lines if not _PATTERN.search(name)}
    names = sorted({*stack.lines, stack.line, *exact})
    for key in project.lines:
        if not any(fnmatch.fnmatchcase(name, key) for name in names):  # `filter` ignores case on Windows
            raise UsageError(
                f"{path}: {project.name} has an entry for the line {key!r}, which the stack does not have",
                tip=wording.did_you_mean(key, names, what="its lines are"),
            )
    # The more exact entry wins: patterns come first, then the stack's table, then the line's own entry.
    entries = sorted(project.lines.items(), key=lambda entry: not _PATTERN.search(entry[0]))
    lines = {}
    for name in names:
        origin, hashtag = None, project.hashtag
        for line in (line for key, line in entries if fnmatch.fnmatchcase(name, key)):
            origin, hashtag = line.origin or origin, line.hashtag or hashtag
        shipped_name = project.lines[name].hashtag if name in exact & project.lines.keys() else None
        hashtag = (shipped_name or stack.lines.get(name, {}).get(project.name, hashtag)).replace(_LINE, name)
        # A line that a project names is one of the stack's, though it may change nothing.
        if name in project.lines or origin is not None or hashtag != project.hashtag:
            lines[name] = Line(origin=origin, hashtag=hashtag)
    return lines


def _check_texts(stack: Stack, path: Path) -> None:
    """Refuse a stack with an empty text where something must stand.

    Args:
        stack: as it was read, before anything is made of its texts.
        path: where from, for messages.

    Raises:
        UsageError: a text or a name is empty, or of blanks alone.
    """
    for place, text in _texts_below(stack, ""):
        if not text.strip() and not (text == "" and _MAY_BE_EMPTY.fullmatch(place)):
            raise UsageError(
                f"{path}: {place} is empty", tip="give it a value, or leave it out where it has a default"
            )


def _texts_below(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Every text of a stack.toml that is not a default, with its place such as `projects.torch.hashtag`."""
    if isinstance(value, str):
        yield place, value
    if isinstance(value, Mapping):
        yield from ((f"a name in {place}", key) for key in value)
    for name, inner in _parts_of(value):
        yield from _texts_below(inner, f"{place}.{name}".lstrip("."))


def _parts_of(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, msgspec.Struct):
        of_field = ((field, getattr(value, field.name)) for field in structs.fields(value))
        return [(field.name, inner) for field, inner in of_field if inner != field.default]
    if isinstance(value, tuple):
        return [(getattr(inner, "name", "") or str(number), inner) for number, inner in enumerate(value)]
    return value.items() if isinstance(value, Mapping) else ()


def _check(stack: Stack, path: Path) -> None:
    """Refuse a stack that contradicts itself.

    Args:
        stack: what was read.
        path: where from, for messages.

    Raises:
        UsageError: it names what it does not have, has a name twice, or needs itself.
    """
    names = [p.name for p in stack.projects]
    _check_names(stack, path)
    if len(set(names)) != len(names):
        raise UsageError(f"{path} names a project twice: {', '.join(names)}")
    flags = [p.flag or p.name for p in stack.projects]
    if len(set(flags)) != len(flags):
        raise UsageError(f"{path} has a flag for two projects: {', '.join(flags)}")
    for project in stack.projects:
        if unknown := set(project.needs) - set(names):
            raise UsageError(
                f"{path}: {project.name} needs {', '.join(sorted(unknown))}, which it does not name"
            )
        for origin in (project.origin, *(line.origin for line in project.lines.values() if line.origin)):
            if sum(bool(v) for v in (origin.url, origin.tree, origin.sdist)) != 1:
                raise UsageError(f"{path}: the origin of {project.name} must have one of url, tree and sdist")
    for text in (*stack.extra_wheels, *(line for p in stack.projects for line in p.build_requires)):
        _check_requirement(text, path)
    _check_places(stack, path)
    _check_versions(stack, path)
    _check_gate(stack, path)
    _check_budgets(stack, path)
    _check_users(stack, path)
    _check_device_wheels(stack, path)
    _check_order(stack, path)


def _check_names(stack: Stack, path: Path) -> None:
    for name in (text for p in stack.projects for text in (p.name, p.distribution)):
        if not requirements.is_project_name(name):
            raise UsageError(
                f"{path}: {requirements.shown(name)} cannot be the name of a project",
                tip="it has letters a-z, digits, and . _ - between them, and no others",
            )


def _check_places(stack: Stack, path: Path) -> None:
    for kind, pattern, values in (
        ("version of Python", requirements.PYTHON, stack.pythons),
        ("platform", _PLATFORM, stack.platforms),
    ):
        if wrong := next((value for value in values if not pattern.fullmatch(value)), None):
            raise UsageError(f"{path}: {wrong!r} is not a {kind}", tip="write 3.11 and linux_x86_64")


def _check_versions(stack: Stack, path: Path) -> None:
    for project in stack.projects:
        if not project.version_file and any("{version}" in text for text in _templates(stack, project)):
            raise UsageError(
                f"{path}: {project.name} is built with {{version}}, and its version_file is empty: only the "
                "built wheel knows it",
                tip="name the file of its tree that has the version, or do without {version}",
            )


def _check_gate(stack: Stack, path: Path) -> None:
    names = [p.name for p in stack.projects]
    if unknown := next((name for name in stack.gate.required if name not in names), None):
        raise UsageError(
            f"{path}: the gate requires the project {unknown!r}, which the stack does not have",
            tip=wording.did_you_mean(unknown, names, what="its projects are"),
        )
    if not stack.gate.records:
        raise UsageError(f"{path}: the gate demands no test record", tip="leave `records` out: smoke tests")
    if any(floor.tests < 1 or floor.device_tests < 0 for floor in stack.gate.records.values()):
        raise UsageError(f"{path}: a floor of the gate is too low: at least one test must have run")
    shipped_name = stack.gate.rebuilders
    if wrong := next((name for name, key in shipped_name.items() if not _KEY_ID.fullmatch(key)), None):
        raise UsageError(
            f"{path}: the key of the rebuilder {wrong!r} is not the id of one",
            tip="its 64 digits are `key` in the answer of cairn challenge --json",
        )
    if not 0 <= stack.gate.rebuilds <= len(set(shipped_name.values())):
        raise UsageError(
            f"{path}: the gate asks for {stack.gate.rebuilds} rebuilds, and names "
            f"{wording.count(set(shipped_name.values()), 'key')} of rebuilders",
            tip="name each in [gate.rebuilders]: NAME = the id of a key of their own",
        )


def _check_budgets(stack: Stack, path: Path) -> None:
    names = [project.name for project in stack.projects]
    if unknown := next((name for name in stack.budgets if name not in names), None):
        raise UsageError(
            f"{path}: a budget is for the project {unknown!r}, which the stack does not have",
            tip=wording.did_you_mean(unknown, names, what="its projects are"),
        )
    for name, budget in stack.budgets.items():
        for field, value in structs.asdict(budget).items():
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise UsageError(f"{path}: the budget {field} of {name!r} is {value}", tip="0 is the least")
        for text in budget.namespaces:
            if not _NAMESPACE.fullmatch(text):
                raise UsageError(
                    f"{path}: {text!r} is not a namespace of C++", tip="write it as `at` or `at::native`"
                )


def _check_users(stack: Stack, path: Path) -> None:
    for consumer in stack.consumers:
        if not requirements.is_project_name(consumer.name):
            raise UsageError(f"{path}: {requirements.shown(consumer.name)} cannot be the name of a consumer")
        ways = (consumer.wheels, consumer.requirement or consumer.index_url, consumer.index)
        if sum(map(bool, ways)) > 1:
            raise UsageError(
                f"{path}: the consumer {consumer.name} has wheels of its own, and what pip is to fetch",
                tip="name its wheels, or its requirement and index_url, or an index of the store",
            )
        if consumer.requirement is not None:
            _check_requirement(consumer.requirement, path)


def _check_device_wheels(stack: Stack, path: Path) -> None:
    words = stack.device_wheels
    if words.prefix and not requirements.is_project_name(words.prefix):
        raise UsageError(
            f"{path}: {words.prefix!r} cannot be the beginning of a project's name",
            tip='such as "amd", for amd-torch-device-gfx942',
        )
    try:
        requirements.version(words.runtime)
    except ValueError as error:
        raise UsageError(f"{path}: the runtime of device_wheels is not a release of ROCm: {error}") from error


def _check_requirement(text: str, path: Path) -> None:
    try:
        requirements.requirement(text)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def _check_order(stack: Stack, path: Path) -> None:
    try:
        stack.ranks()
    except graphlib.CycleError as error:
        raise UsageError(
            f"{path}: projects need each other in a circle: {' -> '.join(error.args[1])}"
        ) from error
    before: dict[str, set[str]] = {}  # what each project needs, and what that needs
    for project in stack.in_order():
        before[project.name] = set(project.needs).union(*(before[name] for name in project.needs))
        # Only wheels that are built before it have a version to name.
        versions = {match[1] for text in _templates(stack, project) for match in _VERSION_OF.finditer(text)}
        if early := versions - before[project.name]:
            raise UsageError(
                f"{path}: {project.name} names the version of {', '.join(sorted(early))}, "
                "which need not be built before it",
                tip=f"add it to the needs of {project.name}",
            )


def _templates(stack: Stack, project: Project) -> Iterator[str]:
    """The texts in which a build of a project fills in placeholders."""
    yield from (*project.requires, *project.requires_rocm, *project.config_settings.values())
    shipped_name, cmake, shared = (
        [(name, text) for table in structs.astuple(each) for name, text in table.items()]
        for each in (project.environment, project.cmake, stack.environment)
    )
    yield from (text for _, text in (*shipped_name, *cmake))
    yield from (text for name, text in shared if name not in dict(shipped_name))
