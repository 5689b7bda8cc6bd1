"""The Python names of a wheel, read statically by griffe (the extra `diff`); nothing of the wheel is run.

Public is what PEP 8 ("Public and Internal Interfaces") and the typing specification ("Library interface")
call so: names without a leading underscore in modules without one; where a module has `__all__`, what that
lists; what is imported only in the `__init__` of a package, from the same project. What only running the code
would tell stays unknown, and is never taken for missing: see `PythonApi.dynamic`.
"""

from __future__ import annotations

import builtins
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from cairn import extras
from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents.binaries import MODULE
from cairn.wheels.metadata.wheel_info import installed_path

if TYPE_CHECKING:
    import griffe

_LARGEST = 8 << 20  # bytes of a module that is parsed
_MOST_ALIASES = 64  # that lead to each other
_OF_TESTS = frozenset(("tests", "test", "conftest", "setup"))
_MAKES_NAMES = re.compile(
    r"\bglobals\(\)|\bsys\.modules\[|\bsetattr\(|\b__dict__\b|^\s*def __getattr__\(", re.MULTILINE
)
_WITHOUT_NAMES = frozenset(("abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol"))
_OF_SELF = re.compile(r"\bself\.([^\W\d_]\w*)")
_EVERYTHING = "/*"  # the end of griffe's name for `from x import *`


class Parameter(NamedTuple):
    """A parameter of a function.

    Attributes:
        name: its name.
        kind: `positional-only`, `positional or keyword`, `variadic positional`, `keyword-only` or
            `variadic keyword`.
        default: as it is written; None where a value must be given, or it is variadic.
    """

    name: str
    kind: str
    default: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonName:
    """A public name.

    Attributes:
        path: where users find it: `torch.nn.Linear`.
        kind: `module`, `class`, `function`, `attribute` or `unknown`: what is imported, or another
            name's value, and cannot be read.
        parameters: of a function, or of a class that has an `__init__` of its own, without `self`; None where
            there is none, or several signatures.
        target: where it is defined, if that is elsewhere.
        inherited: of a class, the public names that it has from its bases, as far as those are known, and
            what its methods use of `self`.
        has_foreign_base: of a class, whether it may have more, from a base that cannot be read.
    """

    path: str
    kind: str
    parameters: tuple[Parameter, ...] | None = None
    target: str = ""
    inherited: frozenset[str] = frozenset()
    has_foreign_base: bool = False


@dataclass(frozen=True, kw_only=True)
class PythonApi:
    """The public names of a wheel.

    Attributes:
        names: by path.
        dynamic: the modules that make names while they are imported, so that a name which is not here may be
            there all the same.
        unread: the modules that could not be parsed.
    """

    names: Mapping[str, PythonName] = field(repr=False)
    dynamic: frozenset[str] = field(repr=False)
    unread: tuple[str, ...] = ()


class PythonSources:
    """The modules of a wheel, each parsed when it is first asked for."""

    def __init__(self, archive: Archive) -> None:
        """Find the modules.

        Raises:
            PrerequisiteError: griffe is not installed.
        """
        extras.demand("diff")
        import griffe  # noqa: PLC0415

        self._griffe = griffe
        self._archive = archive
        self.paths: dict[str, str] = {}
        self.compiled: set[str] = set()
        self.unread: dict[str, str] = {}
        self._modules: dict[str, griffe.Module | None] = {}
        self._dynamic: dict[str, bool] = {}
        self._uses_of_self: dict[str, dict[int, list[str]]] = {}  # by module and line
        self._members: dict[str, Mapping[str, griffe.Object | griffe.Alias]] = {}
        # A stub speaks for a module where nothing else does: one in C.
        for member in sorted(archive.members, key=lambda member: member.name.endswith(".pyi")):
            path = installed_path(member.name)
            if path.endswith((".py", ".pyi")):
                name = module_name(path)
                if name:
                    self.paths.setdefault(name, member.name)
            elif MODULE.search(path):
                self.compiled.add(
                    ".".join((*PurePosixPath(path).parts[:-1], path.rpartition("/")[2].split(".")[0]))
                )

    def module(self, name: str) -> griffe.Module | None:
        """A module; None where the wheel has none of that name that can be parsed."""
        if name not in self._modules:
            self._modules[name] = self._parse(name) if name in self.paths else None
        return self._modules[name]

    def is_dynamic(self, name: str) -> bool:
        """Whether a module has names that only running it would tell."""
        if self.module(name) is None:
            return name in self.compiled or name in self.unread
        return self._dynamic[name] or any(
            self.is_package(target) and self.module(target) is None for target in self._wildcards(name)
        )

    def is_package(self, name: str) -> bool:
        """Whether a name begins with that of a package of this wheel."""
        top = name.partition(".")[0]
        return any(module == top or module.startswith(f"{top}.") for module in (*self.paths, *self.compiled))

    def members(
        self, name: str, _open: frozenset[str] = frozenset()
    ) -> Mapping[str, griffe.Object | griffe.Alias]:
        """The names of a module, those of `from x import *` with them."""
        if name in self._members:
            return self._members[name]
        module = self.module(name)
        if module is None or name in _open:
            return {}
        by_name: dict[str, griffe.Object | griffe.Alias] = {}
        for key, member in _members(module).items():
            if not key.endswith(_EVERYTHING):
                by_name[key] = member
                continue
            target = _leads_to(member)
            for inner, what in self.members(target, _open | {name}).items():
                listed = self.listed(target)
                if inner in listed if listed is not None else not inner.startswith("_"):
                    by_name.setdefault(inner, what)
        if not _open:
            self._members[name] = by_name
        return by_name

    def listed(self, name: str) -> frozenset[str] | None:
        """What `__all__` of a module lists; None where it has none, or one that is computed."""
        module = self.module(name)
        exports = module.exports if module is not None else None
        if exports is None or not all(isinstance(export, str) for export in exports):
            return None
        return frozenset(map(str, exports))

    def resolve(self, what: griffe.Object | griffe.Alias) -> griffe.Object | None:
        """What an imported name stands for; None where that is in another project, or cannot be read."""
        return self.at(_leads_to(what)) if what.is_alias else what  # type: ignore[return-value]

    def at(self, path: str) -> griffe.Object | None:
        """What a dotted path leads to, likewise."""
        for _ in range(_MOST_ALIASES):
            owner, rest = self._split(path)
            if not owner:
                return None
            if not rest:
                return self.module(owner)
            members: Mapping[str, griffe.Object | griffe.Alias] = self.members(owner)
            member = members.get(rest[0])
            for part in rest[1:]:
                member = member.members.get(part) if member is not None and not member.is_alias else None
            if member is None or not member.is_alias:
                return member  # type: ignore[return-value]
            path = _leads_to(member)
        return None

    def kind(self, what: griffe.Object) -> str:
        """`class`, `function` or `attribute`; `unknown` for what is another name's value: `A = _c.A`."""
        if what.is_class or what.is_function:
            return what.kind.value
        value = getattr(what, "value", None)
        is_name = isinstance(value, self._griffe.ExprName | self._griffe.ExprAttribute)
        return "unknown" if is_name else "attribute"

    def inherited(self, what: griffe.Object) -> tuple[frozenset[str], bool]:
        """The public names that a class has from its bases, and whether it may have more that cannot be read.

        Of the built-in ones our own Python tells. What a method uses of `self` is there, whichever method or
        base has set it: griffe lists what `__init__` itself sets.
        """
        names, is_open, bases = self._of_self(what), False, list(getattr(what, "bases", ()))
        seen = {what.path}
        while bases:
            base = bases.pop()
            path = str(getattr(base, "canonical_path", base))
            if path in seen or path in _WITHOUT_NAMES:
                continue
            seen.add(path)
            if (described := self.at(path)) is not None and described.is_class:
                names.update(_members(described), self._of_self(described))
                bases += getattr(described, "bases", ())
            elif isinstance(built_in := getattr(builtins, path, None), type):
                names.update(dir(built_in))
            else:
                is_open = True
        return frozenset(name for name in names if not name.startswith("_")), is_open

    def _of_self(self, what: griffe.Object) -> set[str]:
        lines = self._uses_of_self.get(what.module.path, {}) if what.is_class else {}
        first, last = what.lineno or 0, what.endlineno or 0
        return {name for number, names in lines.items() if first <= number <= last for name in names}

    def _split(self, path: str) -> tuple[str, list[str]]:
        """The module that a dotted path begins with, and the names behind it."""
        parts = path.split(".")
        for count in range(len(parts), 0, -1):
            name = ".".join(parts[:count])
            if name in self.paths:
                return name, parts[count:]
        return "", parts

    def _wildcards(self, name: str) -> Iterator[str]:
        module = self.module(name)
        for key, member in module.members.items() if module is not None else ():
            if key.endswith(_EVERYTHING) and member.is_alias:
                yield _leads_to(member)

    def _parse(self, name: str) -> griffe.Module | None:
        path = self.paths[name]
        try:
            text = self._archive.read(path, limit=_LARGEST).decode("utf-8-sig")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of invalid escapes in strings
                module = self._griffe.visit(name, PurePosixPath(path), text)  # type: ignore[arg-type]
        except (WheelError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.unread[name] = str(error)
            return None
        self._dynamic[name] = bool(_MAKES_NAMES.search(text))
        lines = enumerate(text.split("\n"), 1)
        self._uses_of_self[name] = {
            number: _OF_SELF.findall(line) for number, line in lines if "self." in line
        }
        return module


def _leads_to(what: griffe.Object | griffe.Alias) -> str:
    """Where an imported name is defined, as the import says; empty for what is defined here."""
    return str(getattr(what, "target_path", ""))


def _members(what: griffe.Object) -> dict[str, griffe.Object | griffe.Alias]:
    """The members of a module or a class; in a stub a function may have overloads alone."""
    overloads: Mapping[str, list[griffe.Function]] = getattr(what, "overloads", {})
    return {name: several[0] for name, several in overloads.items() if several} | what.members


def module_name(path: str) -> str:
    """The module that a file is, by its path in site-packages; empty where no `import` finds it."""
    parts = path.removesuffix(".pyi").removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def public_api(sources: PythonSources) -> PythonApi:
    """The public names of a wheel."""
    names: dict[str, PythonName] = {}
    public = [name for name in sorted(sources.paths) if _is_public(name)]
    for module in public:
        names[module] = PythonName(path=module, kind="module")
        for name, what in _public_members(sources, module):
            for described in _described(sources, f"{module}.{name}", what):
                names.setdefault(described.path, described)
    for module in sorted(sources.compiled):
        if _is_public(module):
            names.setdefault(module, PythonName(path=module, kind="module"))
    return PythonApi(
        names=names,
        dynamic=frozenset(name for name in (*public, *sources.compiled) if sources.is_dynamic(name)),
        unread=tuple(f"{name}: {reason}" for name, reason in sorted(sources.unread.items())),
    )


def _is_public(module: str) -> bool:
    parts = module.split(".")
    return not any(part.startswith("_") or part in _OF_TESTS for part in parts)


def _public_members(
    sources: PythonSources, module: str
) -> Iterator[tuple[str, griffe.Object | griffe.Alias]]:
    listed = sources.listed(module)
    top = module.partition(".")[0]
    is_package = sources.paths[module].rpartition("/")[2].startswith("__init__.")
    for name, what in sources.members(module).items():
        if listed is not None:
            if name in listed:
                yield name, what
        elif (
            not name.startswith("_")
            and name != "TYPE_CHECKING"
            and (not what.is_alias or (is_package and _leads_to(what).partition(".")[0] == top))
        ):
            yield name, what


def _described(sources: PythonSources, path: str, what: griffe.Object | griffe.Alias) -> Iterator[PythonName]:
    target = sources.resolve(what)
    if target is None:
        yield PythonName(path=path, kind="unknown", target=_leads_to(what))
        return
    elsewhere = "" if target.path == path else target.path
    if target.is_module:
        yield PythonName(path=path, kind="module", target=elsewhere)
        return
    inherited, has_foreign_base = sources.inherited(target)
    yield PythonName(
        path=path,
        kind=sources.kind(target),
        parameters=_parameters(target),
        target=elsewhere,
        inherited=inherited,
        has_foreign_base=has_foreign_base,
    )
    # A class that is public where it is defined has its members there.
    if target.is_class and (not elsewhere or not _is_public(target.path)):
        for name, member in _members(target).items():
            if not name.startswith("_") and not member.is_alias:
                yield PythonName(
                    path=f"{path}.{name}",
                    kind="function" if member.is_function else "class" if member.is_class else "attribute",
                    parameters=_parameters(member),  # type: ignore[arg-type]
                )


def _parameters(what: griffe.Object) -> tuple[Parameter, ...] | None:
    function: Any = what.members.get("__init__") if what.is_class else what
    if function is None or function.is_alias or not function.is_function:
        return None
    owner = function.parent
    of_class = owner is not None and owner.is_class
    if function.overloads or getattr(owner, "overloads", {}).get(function.name):
        return None
    parameters = tuple(
        Parameter(parameter.name, parameter.kind.value, _default(parameter))
        for parameter in function.parameters
    )
    return parameters[1:] if of_class and "staticmethod" not in function.labels else parameters


def _default(parameter: griffe.Parameter) -> str | None:
    variadic = parameter.kind is not None and parameter.kind.value.startswith("variadic")
    return None if variadic or parameter.default is None else str(parameter.default)
