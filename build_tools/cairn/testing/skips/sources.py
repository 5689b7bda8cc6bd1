"""Find tests in the sources of PyTorch, by the ids that pytest gives them on a machine with a GPU.

Nothing is imported: the sources may be of a torch that is not installed, and need a GPU. A class that is
instantiated for device types is there as one for GPUs, `TestNNDeviceTypeCUDA`, which has the tests of its
bases too; `generated_names` has the names of the tests.

Source: pytorch/pytorch cf30153, torch/testing/_internal/common_device_type.py
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from cairn.errors import UsageError
from cairn.testing.skips import generated_names, ids
from cairn.testing.skips.generated_names import DEVICE, ComputedError, Names, Scope, callee

_INTERNAL = "torch/testing/_internal"
_OPERATORS = (
    "common_methods_invocations.py", "common_modules.py", "common_optimizers.py", "opinfo/definitions"
)  # fmt: skip
_FOR_DEVICES, _PARAMETRIZED = "instantiate_device_type_tests", "instantiate_parametrized_tests"
_COPIED = "copy_tests"  # copy_tests(Template, Tests, "cuda"): of test/inductor/test_torchinductor.py

Method: TypeAlias = "tuple[_Module, ast.FunctionDef]"


class Sources:
    """A tree of PyTorch's sources, of which `test` and `torch/testing` are read.

    Attributes:
        version: the version of torch.

    Raises:
        UsageError: there is no such tree.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            self.version = (root / "version.txt").read_text(encoding="utf-8").strip()
        except OSError as error:
            tip = "name a checkout of PyTorch, with version.txt and test/ in it"
            raise UsageError(f"cannot read {root / 'version.txt'}: {error.strerror}", tip=tip) from error
        self._tests: dict[str, tuple[tuple[str, Names], ...]] = {}
        self._folders: dict[Path, dict[Path, bytes]] = {}

    def find(self, pattern: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tests that a pattern or an id stands for.

        A name that is given in full and may be among those that the sources compute is taken for one of
        them: somebody has seen it.

        Raises:
            UsageError: it is neither; or the file of tests cannot be read.
        """
        parts = ids.take_apart(pattern)
        modules = self._modules(parts)
        if not parts.name:
            return tuple(modules), ()
        regex = re.compile(ids.compile_pattern(pattern).regex if "*" in pattern else re.escape(pattern))
        tests = [(f"{module}::{of}", names) for module in modules for of, names in self._tests_of(module)]
        matching = [
            test
            for scope, names in tests
            for name in names.names
            if regex.fullmatch(test := f"{scope}::{name}")
        ]
        if matching:
            return tuple(dict.fromkeys(matching)), ()
        fitting = [
            (scope, names)
            for scope, names in tests
            if names.may_be(parts.name, lambda: self._operators) and regex.fullmatch(f"{scope}::{parts.name}")
        ]
        if "*" in parts.name or not fitting:
            filled = [
                scope
                for module in modules
                for of in _read(self._root, self._root / "test" / module).filled
                if regex.fullmatch(f"{(scope := f'{module}::{of}')}::{parts.name}")
            ]
            return (), (*(f"{scope}::{names.function}" for scope, names in fitting), *filled)
        longest = max((len(names.function) for _, names in fitting), default=0)
        closest = [scope for scope, names in fitting if len(names.function) == longest]
        return tuple(dict.fromkeys(f"{scope}::{parts.name}" for scope in closest)), ()

    def _modules(self, parts: ids.TestId) -> list[str]:
        """Return the file of a pattern, if it is there; of a folder, the files that may have its class."""
        top = self._root / "test"
        if not parts.module.endswith("*"):
            return [parts.module] if (top / parts.module).is_file() else []
        name = parts.classes[0].removesuffix(DEVICE.upper())
        if name == "*":
            name = "_".join(parts.name.split("_")[:2])
        folder = top / parts.module[:-2]
        if folder not in self._folders:
            self._folders[folder] = {path: path.read_bytes() for path in sorted(folder.rglob("*.py"))}
        paths = (path for path, text in self._folders[folder].items() if name.encode() in text)
        return [path.relative_to(top).as_posix() for path in paths]

    def _tests_of(self, module: str) -> tuple[tuple[str, Names], ...]:
        if module not in self._tests:
            self._tests[module] = tuple(_read(self._root, self._root / "test" / module).tests())
        return self._tests[module]

    @functools.cached_property
    def _operators(self) -> frozenset[str]:
        """The names of operators and modules, as names of tests have them."""
        names: set[str] = set()
        for place in _OPERATORS:
            path = self._root / _INTERNAL / place
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                calls = (node for node in ast.walk(_parse(file)) if isinstance(node, ast.Call) and node.args)
                names |= {_operator(call) for call in calls if callee(call).endswith("Info")}
        return frozenset(names)


def _operator(call: ast.Call) -> str:
    """Return the name of `OpInfo("special.i0", variant_test_name="x")` or `ModuleInfo(torch.nn.L1Loss)`."""
    first = call.args[0]
    name = str(ast.literal_eval(first)) if isinstance(first, ast.Constant) else ast.unparse(first)
    for word in call.keywords:
        if word.arg == "variant_test_name" and isinstance(word.value, ast.Constant):
            name += f"_{ast.literal_eval(word.value)}".rstrip("_")
    return name.removeprefix("torch.").replace(".", "_")


class _Module:
    """A file of tests, or one that its classes have tests from."""

    def __init__(self, root: Path, path: Path) -> None:
        self._root, self._path = root, path
        self._classes: dict[str, ast.ClassDef] = {}
        self._calls: list[ast.Call] = []
        self._constants: dict[str, ast.expr] = {}
        self._imports: dict[str, tuple[str, str]] = {}
        functions: dict[str, ast.FunctionDef] = {}
        for node, loop in _statements(_parse(path).body, {}):
            match node:
                case ast.ClassDef(name=name):
                    self._classes[name] = node
                case ast.FunctionDef(name=name):
                    functions[name] = node
                case ast.ImportFrom(module=module, names=names, level=level):
                    dotted = "." * level + (module or "")
                    self._imports |= {each.asname or each.name: (dotted, each.name) for each in names}
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._constants[name] = value
                case ast.Expr(value=ast.Call() as call):
                    self._calls.append(_replace_names(call, loop))
        # The classes that are given tests of computed names.
        self.filled = {
            call.args[0].id
            for call in ast.walk(_parse(path))
            if isinstance(call, ast.Call) and callee(call) == "setattr" and len(call.args) > 1
            if isinstance(call.args[0], ast.Name) and not isinstance(call.args[1], ast.Constant)
        } & self._classes.keys()
        self.scope = Scope(
            constants=self._constants,
            imports=self._imports,
            objects=functions.keys() | self._classes.keys(),
            parametrizing={name for name, node in functions.items() if "parametrize" in ast.unparse(node)},
        )

    def tests(self) -> Iterator[tuple[str, Names]]:
        """Yield the class and the names of each test function that pytest collects for a GPU."""
        yield from self.own_tests()
        for name, (dotted, original) in self._imports.items():
            module = self._imported(dotted) if name.startswith("Test") else None
            for of, names in module.own_tests() if module else ():
                if of == original:
                    yield of, names

    def own_tests(self) -> Iterator[tuple[str, Names]]:
        """Yield the tests that the file itself has."""
        for_devices = dict(self._instantiated(_FOR_DEVICES))
        parametrized = dict(self._instantiated(_PARAMETRIZED))
        for name, node in self._classes.items():
            methods, inherited = self.methods(node)
            if name in for_devices:
                if self._is_for_gpu(for_devices[name]):
                    for_gpu = f"{name}{DEVICE.upper()}"
                    yield from ((for_gpu, _names(each, for_devices=True)) for each in methods)
                    yield from ((for_gpu, generated_names.plain_name(each)) for _, each in inherited)
            elif self.is_collected(node):
                decorators = [ast.unparse(each) for each in node.decorator_list]
                generated = name in parametrized or any(each.endswith(_PARAMETRIZED) for each in decorators)
                for each in (*methods, *inherited):
                    yield name, _names(each) if generated else generated_names.plain_name(each[1])
        for template, call in self._instantiated(_COPIED):
            if len(call.args) > 2:  # noqa: PLR2004 - template, class, suffix
                yield from self._copies(template, *map(ast.unparse, call.args[1:3]))

    def _copies(self, template: str, target: str, suffix: str) -> Iterator[tuple[str, Names]]:
        source = self.resolve(ast.parse(template, mode="eval").body)
        word = suffix.strip("'") if "'" in suffix else DEVICE  # else GPU_TYPE
        for method in source[0].methods(source[1])[0] if source else ():
            copied = _names(method)
            yield (
                target,
                Names(
                    function=copied.function,
                    names=tuple(f"{name}_{word}" for name in copied.names),
                    is_computed=copied.is_computed,
                ),
            )

    def _instantiated(self, function: str) -> Iterator[tuple[str, ast.Call]]:
        calls = (call for call in self._calls if callee(call) == function and call.args)
        yield from ((ast.unparse(call.args[0]), call) for call in calls)

    def _is_for_gpu(self, call: ast.Call) -> bool:
        for word in call.keywords:
            if word.arg in ("only_for", "except_for"):
                try:
                    value = generated_names.evaluate(word.value, self.scope)
                except ComputedError:
                    continue
                devices = value if isinstance(value, list) else [value]
                if (
                    devices
                    and isinstance(devices[0], str)
                    and (DEVICE in devices) != (word.arg == "only_for")
                ):
                    return False
        return True

    def is_collected(self, node: ast.ClassDef) -> bool:
        """Whether pytest collects a class: by its name, or since it is a TestCase."""
        if node.name.startswith("Test") or any(ast.unparse(base).endswith("TestCase") for base in node.bases):
            return True
        bases = filter(None, map(self.resolve, node.bases))
        return any(module.is_collected(base) for module, base in bases)

    def methods(self, node: ast.ClassDef) -> tuple[list[Method], list[Method]]:
        """Return the test functions of a class, and those that it inherits."""
        of_node = {each.name: (self, each) for each in _functions(node.body)}
        inherited: dict[str, Method] = {}
        for module, base in filter(None, map(self.resolve, node.bases)):
            for method in (method for methods in module.methods(base) for method in methods):
                inherited.setdefault(method[1].name, method)
        return [*of_node.values()], [method for name, method in inherited.items() if name not in of_node]

    def resolve(self, base: ast.expr) -> tuple[_Module, ast.ClassDef] | None:
        """Return a class and its module, if the sources have it."""
        match base:
            case ast.Name(id=name) if name in self._classes:
                return self, self._classes[name]
            case ast.Name(id=name) if name in self._imports:
                dotted, original = self._imports[name]
                module = self._imported(dotted)
                return module.resolve(ast.Name(id=original)) if module else None
            case ast.Attribute(value=outer, attr=name):
                if outer_class := self.resolve(outer):
                    module, node = outer_class
                    nested = (each for each in node.body if isinstance(each, ast.ClassDef))
                    return next(((module, each) for each in nested if each.name == name), None)
        return None

    def _imported(self, dotted: str) -> _Module | None:
        level = len(dotted) - len(dotted.lstrip("."))
        near = self._path.parents[max(level - 1, 0)]
        for top in (near,) if level else (self._root, self._root / "test", near):
            path = top.joinpath(*dotted.lstrip(".").split(".")).with_suffix(".py")
            if path.is_file():
                return _read(self._root, path)
        return None


def _names(method: Method, *, for_devices: bool = False) -> Names:
    return generated_names.names_of(method[1], method[0].scope, for_devices=for_devices)


def _statements(
    body: Iterable[ast.stmt], loop: Mapping[str, ast.expr]
) -> Iterator[tuple[ast.stmt, Mapping[str, ast.expr]]]:
    """Yield the statements of a module, those under conditions too; those of a loop for each of its names."""
    for node in body:
        match node:
            case ast.If() | ast.Try() | ast.With():
                for part in ("body", "orelse", "finalbody"):
                    yield from _statements(getattr(node, part, ()), loop)
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=items) | ast.List(elts=items)):
                for item in items:
                    yield from _statements(node.body, {**loop, name: item})
            case _:
                yield node, loop


def _replace_names(call: ast.Call, loop: Mapping[str, ast.expr]) -> ast.Call:
    arguments = [loop.get(each.id, each) if isinstance(each, ast.Name) else each for each in call.args]
    return ast.Call(func=call.func, args=arguments, keywords=call.keywords)


def _functions(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef]:
    for node, _ in _statements(body, {}):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node


@functools.lru_cache(maxsize=256)
def _read(root: Path, path: Path) -> _Module:
    return _Module(root, path)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as Python: {error}", tip="name a whole checkout") from error
