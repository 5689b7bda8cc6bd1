"""The Python names that a wheel uses of other distributions, read from its sources without running them.

Names come from `import a.b`, `from a.b import c`, and chains of attributes (`a.b.c`) on such names. A use
counts only where nothing suggests that the code goes on without the name: not in a `try` that catches the
failure, nor under a condition about versions or features, nor in tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import wheel_info

_LARGEST = 4 << 20  # bytes of a source file; generated tables are longer, and use nothing
# What a condition says that chooses by what is there.
_CHOICE = re.compile(
    r"__name__|version|hasattr|getattr|type_checking|find_spec|importlib|has_|have_|avail|install|support|compat|legacy"
    r"|import|__dict__|\bdir\(|platform|_v?\d|v\d|lt_|gt_|at_least|since|older|newer|before|old\b"
    r"|is_\w*(?:gt|ge|lt)",
    re.IGNORECASE,
)
_CATCHES_NAME = frozenset(
    ("ImportError", "AttributeError", "NameError", "TypeError", "Exception", "BaseException")
)
_CATCHES_MODULE = _CATCHES_NAME | {"ModuleNotFoundError"}
_OF_TESTS = re.compile(
    r"(?:^|/)(?:conftest\.py|test_[^/]*\.py|[^/]*_test\.py|(?:_?examples?|benchmarks?|docs?)/)"
)
_OPS = ("torch", "ops")
_NO_OPERATOR = frozenset(("load_library", "import_module", "loaded_libraries"))
_OPERATOR_PARTS = 4  # torch.ops.NAMESPACE.NAME


@dataclass(frozen=True, kw_only=True)
class Use:
    """One use of a name of another distribution.

    Attributes:
        name: such as `torch.nn.functional.silu`.
        member: the file in the wheel.
        line: where in it.
        module: whether the name must be a module: `import a.b`.
        at_import: whether the module cannot be imported without it.
        keywords: of its arguments, where it is called.
    """

    name: str
    member: str
    line: int
    module: bool = False
    at_import: bool = False
    keywords: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.member}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class PythonUses:
    """What a wheel's sources use of others.

    Attributes:
        names: every use that counts.
        operators: such as `torchvision::nms`, each with where it is called by `torch.ops`.
        imported: top-level modules that are imported without a second way, and where first.
        unread: sources that this Python cannot parse.
    """

    names: tuple[Use, ...] = ()
    operators: tuple[Use, ...] = ()
    imported: dict[str, Use] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def read(archive: Archive, tops: frozenset[str]) -> PythonUses:
    """What the sources of a wheel use of the modules `tops`.

    Raises:
        WheelError: a source cannot be unpacked.
    """
    files: dict[str, _File] = {}
    unread: list[str] = []
    if not tops:
        return PythonUses()
    mentioned = re.compile(rb"\b(?:" + b"|".join(re.escape(top.encode()) for top in tops) + rb")\b")
    for member in archive.members:
        if not member.name.endswith(".py") or member.size > _LARGEST or _is_of_tests(member.name):
            continue
        source = archive.read(member.name)
        # One that names none of them is parsed too: it says which modules are imported by choice.
        try:
            tree = ast.parse(source)
            files[member.name] = _File(member.name, tree, mentions=mentioned.search(source) is not None)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            unread.append(member.name)
    optional = _imported_by_choice(files.values())
    counted = [one for one in files.values() if one.module not in optional]
    imported: dict[str, Use] = {}
    for one in counted:
        for use in one.imports:
            imported.setdefault(use.name, use)
    every = [use for one in counted for use in one.uses]
    # A namespace (PEP 420), such as `google`, is shared with others.
    own = {one.module for one in files.values() if "." not in one.module}
    return PythonUses(
        names=tuple(use for use in every if _top(use.name) in tops - own and not _is_op(use.name)),
        operators=tuple(filter(None, (_operator(use) for use in every))),
        imported={name: use for name, use in imported.items() if name not in own},
        unread=tuple(unread),
    )


def _is_of_tests(path: str) -> bool:
    return wheel_info.is_of_tests(path) or _OF_TESTS.search(path) is not None


def _top(name: str) -> str:
    return name.partition(".")[0]


def _is_op(name: str) -> bool:
    return tuple(name.split(".")[:2]) == _OPS


def _operator(use: Use) -> Use | None:
    parts = use.name.split(".")
    if tuple(parts[:2]) != _OPS or len(parts) < _OPERATOR_PARTS or _NO_OPERATOR & set(parts[2:4]):
        return None
    return Use(name=f"{parts[2]}::{parts[3]}", member=use.member, line=use.line, at_import=use.at_import)


def _imported_by_choice(files: Iterable[_File]) -> frozenset[str]:
    """The modules of a wheel that it imports, but only where something is there or of some version."""
    always = {name for one in files for name in one.own_imports}
    return frozenset(name for one in files for name in one.own_choices if name not in always)


class _File(ast.NodeVisitor):
    """One source file: what it imports, of others and of its own wheel, and which names it uses.

    Attributes:
        module: its name as a module.
        uses: every use of a name of others.
        imports: of top-level modules of others.
        own_imports: absolute names imported without a second way, among them modules of the same wheel.
        own_choices: those that are imported in a `try` or under a condition.
    """

    def __init__(self, member: str, tree: ast.Module, *, mentions: bool) -> None:
        self.member = member
        path = PurePosixPath(wheel_info.installed_path(member)).with_suffix("")
        self._is_package = path.name == "__init__"
        self.module = ".".join(path.parts[:-1] if self._is_package else path.parts)
        self.uses: list[Use] = []
        self.imports: list[Use] = []
        self.own_imports: set[str] = set()
        self.own_choices: set[str] = set()
        self._guards: list[frozenset[str]] = []
        self._depth = 0  # of functions: what is in one is not needed to import the module
        self._aliases: dict[str, str] = {}
        bound = _bound_otherwise(tree) if mentions else set()
        for node in ast.walk(tree) if mentions else ():
            for local, name in _names_imported(node, self._package):
                if self._aliases.setdefault(local, name) != name:
                    bound.add(local)  # two things by one name: which one is used is not known
        self._aliases = {local: name for local, name in self._aliases.items() if local not in bound}
        self._block(tree.body)

    @property
    def _package(self) -> list[str]:
        parts = self.module.split(".")
        return parts if self._is_package else parts[:-1]

    def _block(self, body: Sequence[ast.stmt]) -> None:
        """Visit statements; what follows `if old: return` is done by choice, too."""
        left = 0
        for statement in body:
            self.visit(statement)
            if isinstance(statement, ast.If) and _is_choice(statement.test) and _leaves(statement.body):
                self._guards.append(_CATCHES_MODULE)
                left += 1
        del self._guards[len(self._guards) - left :]

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        with_guard = frozenset(name for one in node.handlers for name in _caught(one)) & _CATCHES_MODULE
        self._guarded(with_guard, node.body)
        for body in (*(handler.body for handler in node.handlers), node.orelse):
            self._guarded(_CATCHES_MODULE if with_guard else frozenset(), body)
        self._block(node.finalbody)

    visit_TryStar = visit_Try  # noqa: N815 - as ast names it

    def visit_With(self, node: ast.With) -> None:
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        suppressed = frozenset(
            ast.unparse(argument).rpartition(".")[2]
            for call in calls
            if ast.unparse(call.func).endswith("suppress")
            for argument in call.args
        )
        for item in node.items:
            self.visit(item)
        self._guarded(suppressed & _CATCHES_MODULE, node.body)

    def visit_If(self, node: ast.If) -> None:
        before = len(self._guards)
        branch: ast.stmt = node
        # Each `elif` stands in the one before it: hundreds would be too deep for a call each.
        while isinstance(branch, ast.If):
            self._guards.append(_CATCHES_MODULE if _is_choice(branch.test) else frozenset())
            self.visit(branch.test)
            self._block(branch.body)
            orelse = branch.orelse
            branch = orelse[0] if len(orelse) == 1 else ast.Pass()
        self._block(orelse)
        del self._guards[before:]

    def visit_BinOp(self, node: ast.BinOp) -> None:
        left: ast.expr = node
        parts: list[ast.expr] = []
        while isinstance(left, ast.BinOp):  # so does each sum in the next one
            parts.append(left.right)
            left = left.left
        for part in (left, *reversed(parts)):
            self.visit(part)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._expressions([node.test, node.body, node.orelse], choice=_is_choice(node.test))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._expressions(node.values, choice=any(map(_is_choice, node.values)))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        choice = any(map(_is_choice, node.decorator_list))
        self._expressions(node.decorator_list, choice=choice)
        for argument in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(argument)
        self._depth += 1
        self._guarded(_CATCHES_MODULE if choice else frozenset(), node.body)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(part)
        self._block(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        for part in filter(None, (node.target, node.value)):  # annotations may be never evaluated
            self.visit(part)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._own(alias.name)
            self._import(alias.name, node, module=True)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = _absolute(node, self._package)
        if not base:
            return
        self._own(base)
        for alias in node.names:
            self._own(f"{base}.{alias.name}")
        if node.level:
            return
        self._import(base, node, module=True)
        for alias in node.names:
            if alias.name != "*":
                self._use(f"{base}.{alias.name}", node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._chain(node)
        if name is None:
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            self._use(name, node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._chain(node.func)
        if name is None:
            self.visit(node.func)
        else:
            keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
            self._use(name, node, keywords=keywords)
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.visit(part)

    def _chain(self, node: ast.expr) -> str | None:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        base = self._aliases.get(node.id) if isinstance(node, ast.Name) else None
        return ".".join([base, *reversed(parts)]) if base else None

    def _use(self, name: str, node: ast.stmt | ast.expr, *, keywords: tuple[str, ...] = ()) -> None:
        if not self._guard() & _CATCHES_NAME:
            at_import = self._depth == 0
            self.uses.append(
                Use(name=name, member=self.member, line=node.lineno, at_import=at_import, keywords=keywords)
            )

    def _import(self, name: str, node: ast.stmt, *, module: bool) -> None:
        if self._guard() & (_CATCHES_MODULE - {"AttributeError", "NameError", "TypeError"}):
            return
        use = Use(name=name, member=self.member, line=node.lineno, module=module, at_import=self._depth == 0)
        self.uses.append(use)
        if self._depth == 0:
            self.imports.append(Use(name=_top(name), member=self.member, line=node.lineno))

    def _own(self, name: str) -> None:
        (self.own_choices if self._guard() else self.own_imports).add(name)

    def _guard(self) -> frozenset[str]:
        return frozenset().union(*self._guards) if self._guards else frozenset()

    def _guarded(self, guard: frozenset[str], body: Sequence[ast.stmt]) -> None:
        self._guards.append(guard)
        self._block(body)
        self._guards.pop()

    def _expressions(self, nodes: Iterable[ast.expr], *, choice: bool) -> None:
        self._guards.append(_CATCHES_MODULE if choice else frozenset())
        for node in nodes:
            self.visit(node)
        self._guards.pop()


def _absolute(node: ast.ImportFrom, package: Sequence[str]) -> str:
    above = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def _names_imported(node: ast.AST, package: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Local names that an import binds, each with what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (_top(alias.name), _top(alias.name))
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, package)
        yield from ((alias.asname or alias.name, f"{base}.{alias.name}") for alias in node.names)


def _bound_otherwise(tree: ast.Module) -> set[str]:
    """Names that are bound by something other than an import anywhere in a file."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            names.add(node.name or "")
    return names


def _caught(handler: ast.ExceptHandler) -> frozenset[str]:
    if handler.type is None:
        return _CATCHES_MODULE
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return frozenset(ast.unparse(kind).rpartition(".")[2] for kind in kinds)


def _is_choice(test: ast.expr) -> bool:
    return _CHOICE.search(ast.unparse(test)) is not None


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(one, ast.Return | ast.Raise | ast.Continue | ast.Break) for one in body)
