"""What a stack.toml must hold besides its fields: edges that lead somewhere, names that are unique."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from cairn import requirements
from cairn.errors import UsageError
from cairn.output import wording
from cairn.stack.model import Project, Stack

_VERSION_OF = re.compile(r"\{version:([A-Za-z0-9_-]+)\}")  # see cairn.build.inputs.variables
# A platform tag (PEP 425) without the version of glibc or macOS, which is a matter of who installs.
_PLATFORM = re.compile(r"linux_[a-z0-9_]+|win_(amd64|arm64)|macosx_(x86_64|arm64)")

# What may be empty, besides a field that is so by default: the version file of a project that has none, the
# value of a variable or a setting, and an argument of a command.
_MAY_BE_EMPTY = re.compile(
    r"(.*\.)?(version_file|(environment|cmake)\.\w+\..+|config_settings\..+|(build|machine|notify)\.[1-9]\d*)"
)


def check_texts(stack: Stack, path: Path) -> None:
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
        of_field = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(value))
        return [(field.name, inner) for field, inner in of_field if inner != field.default]
    if isinstance(value, tuple):
        return [(getattr(inner, "name", "") or str(number), inner) for number, inner in enumerate(value)]
    return value.items() if isinstance(value, Mapping) else ()


def check(stack: Stack, path: Path) -> None:
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
        if early := _versions_named(stack, project) - before[project.name]:
            raise UsageError(
                f"{path}: {project.name} names the version of {', '.join(sorted(early))}, "
                "which need not be built before it",
                tip=f"add it to the needs of {project.name}",
            )


def _versions_named(stack: Stack, project: Project) -> set[str]:
    """The projects whose `{version:NAME}` a project's texts have: only wheels built before it have one."""
    return {match[1] for text in _templates(stack, project) for match in _VERSION_OF.finditer(text)}


def _templates(stack: Stack, project: Project) -> Iterator[str]:
    """The texts in which a build of a project fills in placeholders."""
    yield from (*project.requires, *project.requires_rocm, *project.config_settings.values())
    own, cmake, shared = (
        [(name, text) for table in msgspec.structs.astuple(each) for name, text in table.items()]
        for each in (project.environment, project.cmake, stack.environment)
    )
    yield from (text for _, text in (*own, *cmake))
    yield from (text for name, text in shared if name not in dict(own))
