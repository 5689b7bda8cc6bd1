"""Whether wheels have a Python name, and which keywords it takes: looked up in their sources, nothing is run.

Only the modules on the way to a name are parsed. Python makes names at run time too, so there are three
answers, and where a module may have more names than can be read, the third is given. That is judged by what
griffe, which lists the public names of a wheel (`interface.python_api`), does not keep: every branch, texts,
calls that make names at import, and what a `__getattr__` refuses.
"""

from __future__ import annotations

import ast
import enum
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cairn.formats.view import MemberView
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import wheel_info

_LARGEST = 16 << 20  # bytes of a source file
_SMALL_BINARY, _LARGEST_BINARY = 64 << 10, 512 << 20  # bytes
_DEEPEST = 40  # steps from one module to the next that has the name
_BINARY = (".so", ".pyd", ".dylib")
# Functions that a `__getattr__` may give a name to, and which know no more names than its module.
_ASKS_NOBODY = frozenset(
    (
        "getattr",
        "hasattr",
        "import_module",
        "get",
        "AttributeError",
        "format",
        "repr",
        "startswith",
        "endswith",
    )
)
_MIRRORED = 3  # one in so many names of a module
_EVERY_MODULE = re.compile(r"__\w+__$")  # `__file__` and the like, which need not stand in it
# Calls and targets by which a module makes names that do not stand in it; `lazy_loader` has `attach`.
_MAKES_NAMES = re.compile(
    r"(globals|vars|locals)\(\)(\[|\.(update|setdefault|__setitem__))|sys\.modules\b|exec\(|setattr\(|\w*\.?_?attach(_stub)?\("
    r"|\w+\.__dict__(\[|\.update)|\w*\.?lazy_import\("
)


class Presence(enum.Enum):
    """Whether a name is there."""

    PRESENT = "present"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Name:
    """What is known of a name.

    Attributes:
        presence: whether it is there.
        keywords: the keyword arguments that it takes; None where that is not known, or it takes any.
        decorators: of its definitions, as text: they may take more.
    """

    presence: Presence
    keywords: frozenset[str] | None = None
    decorators: str = ""


_PRESENT = Name(presence=Presence.PRESENT)
_MISSING = Name(presence=Presence.MISSING)
_UNKNOWN = Name(presence=Presence.UNKNOWN)


@dataclass(kw_only=True)
class _Module:
    """The names of one module, as they stand in its source.

    Attributes:
        bound: name to the nodes that bind it.
        stars: modules whose names it takes over.
        exported: what its `__all__` lists; None where it has none, or one that is put together.
        listed: names that its `.pyi` file has, or its `__all__`.
        is_open: it may have any name.
        only_stub: it is a binary, of which a stub says what others take with `from … import *`.
        by_text: it makes names at run time, all of which stand in it as texts.
        texts: the texts in it.
    """

    bound: dict[str, list[ast.AST]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    exported: frozenset[str] | None = None
    listed: frozenset[str] = frozenset()
    is_open: bool = False
    only_stub: bool = False
    by_text: bool = False
    texts: frozenset[str] = frozenset()


class PythonNames:
    """The Python names of some wheels that are installed together.

    Attributes:
        tops: the top-level modules that they bring.
    """

    def __init__(self, archives: Iterable[Archive]) -> None:
        self._files: dict[str, Archive] = {}
        self._at: dict[str, str] = {}  # where a file is installed -> the member
        self._folders: set[str] = set()
        self._binaries: dict[str, tuple[Archive, Member]] = {}
        self._is_deep = False
        for archive in archives:
            for member in archive.members:
                place = wheel_info.installed_path(member.name)
                if place.endswith((".py", ".pyi")):
                    self._files[place], self._at[place] = archive, member.name
                elif place.endswith(_BINARY):
                    self._binaries[place.partition(".")[0]] = archive, member
                folders = place.split("/")[:-1]
                self._folders.update("/".join(folders[:end]) for end in range(1, len(folders) + 1))
        tops = {place.partition("/")[0].partition(".")[0] for place in (*self._at, *self._binaries)}
        self.tops = frozenset(top for top in tops if top.isidentifier())
        self._module = functools.lru_cache(maxsize=None)(self._read)
        self._is_module = functools.lru_cache(maxsize=None)(self._has_module)
        self._answers: dict[tuple[str, bool], Name] = {}

    def look_up(self, name: str, *, module: bool = False, deep: bool = False) -> Name:
        """Whether there is a name such as `torch.nn.functional.silu`.

        Args:
            name: with its top-level module.
            module: whether only a module of that name will do.
            deep: where it is not known, look into binaries too, which takes a second.
        """
        key = name, module
        if key not in self._answers:
            self._answers[key] = self._look_up(name, module=module)
        if deep and self._answers[key].presence is Presence.UNKNOWN:
            self._is_deep = True
            self._answers[key] = self._look_up(name, module=module)
            self._is_deep = False
        return self._answers[key]

    def _look_up(self, name: str, *, module: bool) -> Name:
        parts = name.split(".")
        if parts[0] not in self.tops:
            return _UNKNOWN
        if module:
            return self._as_module(parts)
        end = len(parts)
        while end > 1 and not self._is_module(".".join(parts[:end])):
            end -= 1
        return self._attributes(".".join(parts[:end]), parts[end:])

    def _as_module(self, parts: list[str]) -> Name:
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if not self._is_module(name):
                parent = self._module(".".join(parts[: end - 1]))
                # A module may be put into sys.modules by hand (six.moves), or be a name of its parent.
                return _UNKNOWN if parent is None or parent.is_open else _MISSING
        return _PRESENT

    def _has_module(self, name: str) -> bool:
        place = name.replace(".", "/")
        return (
            any(place + end in self._at for end in (".py", "/__init__.py", ".pyi", "/__init__.pyi"))
            or place in self._binaries
            or place in self._folders
        )

    def _attributes(
        self, module: str, rest: Sequence[str], depth: int = 0, seen: set[str] | None = None
    ) -> Name:
        """What is known of `module.rest`; `seen` are the modules that are looked into for a star already."""
        own = self._module(module) if depth <= _DEEPEST else None
        if not rest or own is None:
            return _UNKNOWN if rest else _PRESENT
        first, *more = rest
        if nodes := own.bound.get(first):
            return self._of_nodes(module, nodes, more, depth)
        if self._is_module(f"{module}.{first}"):
            return self._attributes(f"{module}.{first}", more, depth + 1)
        seen = set() if seen is None else seen
        above = {*seen, module}
        seen.add(module)  # modules may take names over from each other in a circle
        answers = {star: self._of_star(star, first, depth, seen) for star in own.stars}
        for star, answer in answers.items():
            if answer.presence is Presence.PRESENT:
                return self._attributes(star, rest, depth + 1, above) if more else answer
        if first in own.listed:
            return _UNKNOWN if more else _PRESENT
        known = own.by_text and first in own.texts
        unknown = any(answer.presence is Presence.UNKNOWN for answer in answers.values())
        is_open = own.is_open or known or unknown or _EVERY_MODULE.match(first)
        return _UNKNOWN if is_open else _MISSING

    def _of_star(self, module: str, name: str, depth: int, seen: set[str]) -> Name:
        """What `from module import *` takes over of a name."""
        own = self._module(module)
        if module in seen:
            return _MISSING
        if own is None and self._is_deep:
            return self._of_binary(module, name)
        if own is not None and own.only_stub and name not in own.bound:
            return _MISSING
        if own is not None and name not in (own.exported if own.exported is not None else {name}):
            return _MISSING
        return self._attributes(module, [name], depth + 1, seen)

    def _of_binary(self, module: str, name: str) -> Name:
        """Whether a module in C may have a name: it stands in its file then."""
        archive, member = self._binaries.get(module.replace(".", "/"), (None, None))
        # A small one hands its work on to a library, as `torch._C` does.
        if archive is None or member is None or not _SMALL_BINARY < member.size < _LARGEST_BINARY:
            return _UNKNOWN
        is_there = name.encode() in MemberView(archive, member).read(0, member.size)
        return _UNKNOWN if is_there else _MISSING

    def _of_nodes(self, module: str, nodes: list[ast.AST], more: Sequence[str], depth: int) -> Name:
        """What is known of the attributes `more` of what these nodes bind."""
        answers = [self._of_node(module, node, more, depth) for node in nodes]
        if any(answer.presence is Presence.PRESENT for answer in answers):
            present = [answer for answer in answers if answer.presence is Presence.PRESENT]
            known = [answer.keywords for answer in answers if answer.keywords is not None]
            return Name(
                presence=Presence.PRESENT,
                keywords=frozenset().union(*known) if len(known) == len(answers) else None,
                decorators=" ".join(answer.decorators for answer in present),
            )
        return _UNKNOWN if any(answer.presence is Presence.UNKNOWN for answer in answers) else _MISSING

    def _of_node(self, module: str, node: ast.AST, more: Sequence[str], depth: int) -> Name:
        if isinstance(node, ast.ImportFrom):
            # `alias` stands in a node of its own (see `_bind`), so that there is one name.
            alias, base = node.names[0], self._base(module, node)
            answer = self._attributes(base, [alias.name, *more], depth + 1) if base else _UNKNOWN
            # It is bound in any case; if not, the module itself could not be imported.
            return answer if more or answer.presence is Presence.PRESENT else _PRESENT
        if isinstance(node, ast.Import):
            alias = node.names[0]
            target = alias.name if alias.asname else alias.name.partition(".")[0]
            known = self._is_module(target) and target.partition(".")[0] in self.tops
            return self._attributes(target, more, depth + 1) if known else (_UNKNOWN if more else _PRESENT)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return _UNKNOWN if more else _signature(node, skip_first=False)
        if isinstance(node, ast.ClassDef) and not more:
            return _constructor(node)
        if isinstance(node, ast.ClassDef) and any(_binds(statement, more[0]) for statement in node.body):
            return _PRESENT if len(more) == 1 else _UNKNOWN
        return _UNKNOWN if more else _PRESENT

    def _base(self, module: str, node: ast.ImportFrom) -> str | None:
        """The module that `from … import` names, if it is one of these wheels'."""
        parts = module.split(".")
        if not any(f"{module.replace('.', '/')}/__init__{end}" in self._at for end in (".py", ".pyi")):
            parts = parts[:-1]
        above = parts[: len(parts) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return base if base.partition(".")[0] in self.tops and self._is_module(base) else None

    def _read(self, name: str) -> _Module | None:
        """A module's names; None where they cannot be read, be it that it is nested too deeply."""
        try:
            return self._read_sources(name)
        except RecursionError:
            return None

    def _read_sources(self, name: str) -> _Module | None:
        place = name.replace(".", "/")
        source = self._tree(f"{place}.py") or self._tree(f"{place}/__init__.py")
        stub = self._tree(f"{place}.pyi") or self._tree(f"{place}/__init__.pyi")
        if source is None and stub is None:
            # A folder without `__init__.py` has its modules and nothing else.
            is_folder = place in self._folders and place not in self._binaries
            has_source = f"{place}/__init__.py" in self._at or f"{place}.py" in self._at
            return _Module() if is_folder and not has_source else None
        of_stub = _Module()
        if stub is not None:
            self._bind(name, stub.body, of_stub)
        if source is None:
            of_stub.is_open = of_stub.only_stub = True  # a binary may have more than its stub says
            return of_stub
        module = _Module(texts=frozenset(_texts(source)))
        self._bind(name, source.body, module)
        lists = module.bound.get("__all__", [])
        listed = frozenset(text for node in lists for text in _texts(node))
        if len(lists) == 1 and _is_literal(lists[0]) and "__all__." not in ast.unparse(source):
            module.exported = listed
        module.listed = listed.union(of_stub.bound)
        module.is_open = module.is_open or _makes_names(source.body)
        module.by_text = any(map(_is_listed, ast.walk(source)))
        accessor = module.bound.get("__getattr__")
        if accessor is not None:
            refuses = all(isinstance(node, ast.FunctionDef) and _refuses(node) for node in accessor)
            # `__dir__` that gives `__all__` says that there is nothing else, whoever `__getattr__` asks.
            refuses = refuses or any("__all__" in ast.unparse(one) for one in module.bound.get("__dir__", ()))
            module.by_text |= refuses
            module.is_open |= not refuses
        # One that loads its names late (`lazy_loader`, `_LazyModule`) tells type checkers all of them, and
        # those that it loads stand in it as texts, too.
        for_checkers = _Module()
        self._bind(name, _for_type_checkers(source.body), for_checkers)
        if _MIRRORED * len(for_checkers.bound) > len(module.bound):
            module.by_text, module.is_open = True, for_checkers.is_open
        if any(isinstance(node, ast.FunctionDef) and _hands_on(node) for node in accessor or ()):
            module.is_open = True
        return module

    def _tree(self, place: str) -> ast.Module | None:
        archive = self._files.get(place)
        if archive is None or archive.member(self._at[place]).size > _LARGEST:
            return None
        try:
            return ast.parse(archive.read(self._at[place]))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def _bind(self, name: str, body: Iterable[ast.stmt], module: _Module) -> None:
        """Note what statements bind, in every branch."""
        for node in body:
            if isinstance(node, ast.ImportFrom | ast.Import):
                self._bind_import(name, node, module)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                module.bound.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Delete):
                for deleted in node.targets:
                    module.bound.pop(getattr(deleted, "id", ""), None)
            else:
                for target in _assigned(node):
                    module.bound.setdefault(target, []).append(node)
                for inner in _bodies(node):
                    # What is deleted in a branch, may be there by another.
                    self._bind(name, [s for s in inner if not isinstance(s, ast.Delete)], module)

    def _bind_import(self, name: str, node: ast.ImportFrom | ast.Import, module: _Module) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                local, one = alias.asname or alias.name.partition(".")[0], ast.Import(names=[alias])
                module.bound.setdefault(local, []).append(one)
            elif alias.name != "*":
                single = ast.ImportFrom(module=node.module, names=[alias], level=node.level)
                module.bound.setdefault(alias.asname or alias.name, []).append(single)
            elif (base := self._base(name, node)) is not None:
                module.stars.append(base)
            else:
                module.is_open = True


def _for_type_checkers(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from node.body


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field_name in ("body", "orelse", "finalbody"):
        yield getattr(node, field_name, None) or []
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _assigned(node: ast.AST) -> Iterator[str]:
    """The names that a statement assigns to, not those in statements inside it."""
    targets: list[ast.AST] = [*getattr(node, "targets", ()), *filter(None, [getattr(node, "target", None)])]
    targets += [item.optional_vars for item in getattr(node, "items", ()) if item.optional_vars]
    for target in targets:
        yield from (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name))
    for value in (getattr(node, "value", None), getattr(node, "test", None)):
        if isinstance(value, ast.AST):
            yield from (w.target.id for w in ast.walk(value) if isinstance(w, ast.NamedExpr))


def _is_literal(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    return isinstance(node, ast.Assign | ast.AnnAssign) and all(
        isinstance(one, ast.Constant) for one in getattr(value, "elts", [None])
    )


def _binds(statement: ast.stmt, name: str) -> bool:
    named = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return (named and statement.name == name) or name in _assigned(statement)  # type: ignore[attr-defined]


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, skip_first: bool) -> Name:
    arguments = node.args
    names = [argument.arg for argument in (*arguments.args[skip_first:], *arguments.kwonlyargs)]
    return Name(
        presence=Presence.PRESENT,
        keywords=None if arguments.kwarg else frozenset(names),
        decorators=" ".join(ast.unparse(one) for one in node.decorator_list),
    )


def _constructor(node: ast.ClassDef) -> Name:
    """The keywords that a class is called with, where its own body says so."""
    functions = (one for one in node.body if isinstance(one, ast.FunctionDef))
    own = [one for one in functions if one.name in ("__init__", "__new__")]
    if not own or node.decorator_list or node.keywords:
        return _PRESENT
    signatures = [_signature(one, skip_first=True) for one in own]
    known = [one.keywords for one in signatures if one.keywords is not None]
    return Name(
        presence=Presence.PRESENT,
        keywords=frozenset().union(*known) if len(known) == len(signatures) else None,
        decorators=" ".join(one.decorators for one in signatures),
    )


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def _makes_names(body: Iterable[ast.AST]) -> bool:
    """Whether a module makes names that do not stand in it, while it is imported."""
    return any(_MAKES_NAMES.match(ast.unparse(node)) for node in _at_import(body) if _may_make_names(node))


def _is_listed(node: ast.AST) -> bool:
    """Whether it is a loop over texts: `for name in ["float96", "float128"]: globals()[name] = …`."""
    return isinstance(node, ast.For) and _is_literal(ast.Assign(targets=[], value=node.iter))


def _may_make_names(node: ast.AST) -> bool:
    stored = isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store)
    return stored or isinstance(node, ast.Call)


def _at_import(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not _is_listed(node):
            yield from _at_import(ast.iter_child_nodes(node))


def _hands_on(node: ast.FunctionDef) -> bool:
    """Whether a `__getattr__` asks a function for what it does not know, and does not tell it `__all__`."""
    parameters = {argument.arg for argument in node.args.args}
    return any(
        ast.unparse(call.func).rpartition(".")[2] not in _ASKS_NOBODY and "__all__" not in ast.unparse(call)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(argument, ast.Name) and argument.id in parameters
    )


def _refuses(node: ast.FunctionDef) -> bool:
    """Whether a `__getattr__` says itself which names there are not, and hands none on to something else."""
    parameters = {argument.arg for argument in node.args.args}
    inside = list(ast.walk(node))
    hands_on = any(
        isinstance(inner, ast.Call)
        and ast.unparse(inner.func) == "getattr"
        and any(isinstance(argument, ast.Name) and argument.id in parameters for argument in inner.args[1:])
        for inner in inside
    )
    return not hands_on and any(
        isinstance(inner, ast.Raise) and "AttributeError" in ast.unparse(inner) for inner in inside
    )
