"""The names that PyTorch generates of a test function by its decorators.

`@parametrize` adds its arguments with their values, `@ops` and `@modules` the name of an operator or module,
a class for device types the device and the dtypes: `test_add_dim_1_cuda_float32`. Values that the sources
compute are not computed here: `Names.may_be` tells whether a name that somebody has seen can be of the test.

Source: pytorch/pytorch cf30153, torch/testing/_internal/common_utils.py
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import structs

DEVICE = "cuda"
"""What torch calls AMD's GPUs."""

_DTYPE = (
    r"(?:bool|u?int(?:8|16|32|64)|q(?:u?int8|int32)|b?float(?:16|32|64)|float8_e\w+|complex(?:32|64|128))"
)
_FOR_DEVICE = re.compile(rf"(.*)_{DEVICE}((?:_{_DTYPE})*)")
_ALIASES = {
    "half": "float16", "float": "float32", "double": "float64", "chalf": "complex32", "cfloat": "complex64",
    "cdouble": "complex128", "short": "int16", "int": "int32", "long": "int64",
}  # fmt: skip
_OF_OPERATORS = ("ops", "modules", "optims")
_WITHOUT_DTYPES = "OpDTypes.none"


class ComputedError(Exception):
    """The sources compute a value, which is not done here."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a module that decorators use.

    Attributes:
        constants: what is assigned to a name.
        imports: module and name of what is imported, by the name that it is imported as.
        objects: classes and functions.
        parametrizing: functions that parametrize what they decorate.
    """

    constants: Mapping[str, ast.expr]
    imports: Mapping[str, tuple[str, str]]
    objects: Collection[str]
    parametrizing: Collection[str]


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a test function.

    Attributes:
        function: its own.
        names: all of them, if the sources do not compute any.
        is_computed: they do.
        for_devices: names end with the device, and dtypes if there are any.
        with_dtypes: there are.
        of_operators: the device follows the name of an operator or a module.
    """

    function: str
    names: tuple[str, ...]
    is_computed: bool = False
    for_devices: bool = False
    with_dtypes: bool = False
    of_operators: bool = False

    def may_be(self, name: str, operators: Callable[[], Collection[str]]) -> bool:
        """Whether a name, or the beginning of one up to a star, can be among those that are computed.

        Args:
            name: the name.
            operators: the names of all operators and modules, as names of tests have them.
        """
        if not self.is_computed:
            return False
        if "*" in name:
            beginning = name.partition("*")[0]
            return f"{self.function}_".startswith(beginning) or beginning.startswith(f"{self.function}_")
        values = name
        if self.for_devices:
            match = _FOR_DEVICE.fullmatch(name)
            if match is None or bool(match[2]) < self.with_dtypes:
                return False
            values = match[1]
        if not self.of_operators:
            return values.startswith(f"{self.function}_") or (self.with_dtypes and values == self.function)
        words = values.removeprefix(f"{self.function}_").split("_")
        # Values of `@parametrize` stand on either side of it, by the order of the decorators.
        ends = range(len(words))
        return values.startswith(f"{self.function}_") and any(
            "_".join(part) in operators() for end in ends for part in (words[end:], words[: end + 1])
        )


def names_of(function: ast.FunctionDef, scope: Scope, *, for_devices: bool) -> Names:
    """Return the names that a class for device types, or one for parametrized tests, has of a function."""
    values, dtypes = [""], [""]
    # A decorator may be assigned to a name before.
    decorators = [
        scope.constants.get(each.id, each) if isinstance(each, ast.Name) else each
        for each in function.decorator_list
    ]
    is_computed = any(ast.unparse(each).partition("(")[0] in scope.parametrizing for each in decorators)
    kinds = [(callee(each, scope), each) for each in decorators if isinstance(each, ast.Call)]
    has_own_dtypes = any(kind == "dtypesIfCUDA" for kind, _ in kinds)
    for kind, call in reversed(kinds):
        try:
            if kind == "parametrize":
                outer = _parametrized(call, scope)
                values = ["_".join(filter(None, pair)) for pair in itertools.product(outer, values)]
            elif for_devices and kind == ("dtypesIfCUDA" if has_own_dtypes else "dtypes"):
                dtypes = [_dtypes(evaluate(each, scope)) for each in call.args]
        except ComputedError:
            is_computed = True
    of_operators = [call for kind, call in kinds if kind in _OF_OPERATORS]
    with_dtypes = any(kind in ("dtypes", "dtypesIfCUDA") for kind, _ in kinds) or any(
        _WITHOUT_DTYPES not in ast.unparse(call) for call in of_operators
    )
    is_computed = is_computed or bool(of_operators)
    names = [] if is_computed else ["_".join(filter(None, (function.name, value))) for value in values]
    if for_devices:
        names = [f"{name}_{DEVICE}{dtype}" for name in names for dtype in dtypes]
    return Names(
        function=function.name,
        names=tuple(names),
        is_computed=is_computed,
        for_devices=for_devices,
        with_dtypes=for_devices and with_dtypes,
        of_operators=bool(of_operators),
    )


def plain_name(function: ast.FunctionDef) -> Names:
    """Return the name of a function of which nothing is generated."""
    return Names(function=function.name, names=(function.name,))


def callee(call: ast.Call, scope: Scope | None = None) -> str:
    """Return the name of a function that is called, as its own module has it; empty for an expression."""
    match call.func:
        case ast.Name(id=name):
            return scope.imports.get(name, ("", name))[1] if scope else name
        case ast.Attribute(attr=name):
            return name
    return ""


class _Dtype(msgspec.Struct, frozen=True):
    name: str


class _Subtest(msgspec.Struct, frozen=True):
    values: object
    name: object


_COUNTED = object()  # a value that has no text in names: its number stands for it


def _parametrized(call: ast.Call, scope: Scope) -> list[str]:
    """Return what each row of `@parametrize` adds to the name."""
    words = {word.arg: word.value for word in call.keywords}
    words |= dict(zip(("arg_str", "arg_values", "name_fn"), call.args, strict=False))
    if not {"arg_str", "arg_values"} <= words.keys():
        raise ComputedError
    arguments = [each.strip() for each in str(evaluate(words["arg_str"], scope)).split(",") if each]
    rows = []
    for number, row in enumerate(_items(evaluate(words["arg_values"], scope))):
        values = row.values if isinstance(row, _Subtest) else row
        if isinstance(row, _Subtest) and row.name:
            rows.append(str(row.name))
        elif "name_fn" in words:
            raise ComputedError
        else:
            columns = [values] if len(arguments) == 1 else _items(values)
            pairs = zip(arguments, columns, strict=False)
            rows.append("_".join(_text(argument, number, value) for argument, value in pairs))
    return rows


def _text(argument: str, number: int, value: object) -> str:
    if isinstance(value, _Dtype):
        return value.name
    if isinstance(value, int | float | str):
        return f"{argument}_{str(value).replace('.', '_')}"
    return f"{argument}{number}"


def _dtypes(value: object) -> str:
    dtypes = value if isinstance(value, list) else [value]
    names = [f"_{each.name}" for each in dtypes if isinstance(each, _Dtype)]
    if len(names) < len(dtypes):
        raise ComputedError
    return "".join(names)


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ComputedError
    return value


def evaluate(node: ast.expr, scope: Scope) -> object:
    """Return the value of an expression of constants; a sequence is a list.

    Raises:
        ComputedError: it is of anything else.
    """
    read = _READERS.get(type(node))
    if read is None:
        raise ComputedError
    return read(node, scope)


def _constant(node: ast.Constant, _scope: Scope) -> object:
    return _COUNTED if node.value is None else node.value


def _sequence(node: ast.Tuple | ast.List, scope: Scope) -> object:
    return [evaluate(each, scope) for each in node.elts]


def _negative(node: ast.UnaryOp, scope: Scope) -> object:
    value = evaluate(node.operand, scope)
    if isinstance(node.op, ast.USub) and isinstance(value, int | float):
        return -value
    raise ComputedError


def _attribute(node: ast.Attribute, _scope: Scope) -> object:
    name = _ALIASES.get(node.attr, node.attr)
    if ast.unparse(node.value) == "torch" and re.fullmatch(_DTYPE, name):
        return _Dtype(name)
    raise ComputedError


def _name(node: ast.Name, scope: Scope) -> object:
    if node.id in scope.constants:
        # A name may be assigned a value that has the name's earlier one in it.
        constants = {**scope.constants}
        value = constants.pop(node.id)
        return evaluate(value, structs.replace(scope, constants=constants))
    if node.id in scope.objects:
        return _COUNTED
    raise ComputedError


def _call(node: ast.Call, scope: Scope) -> object:
    function, values = callee(node, scope), [evaluate(each, scope) for each in node.args]
    words = {word.arg: word.value for word in node.keywords}
    if function == "subtest" and values:
        return _Subtest(values[0], evaluate(words["name"], scope) if "name" in words else None)
    if function == "range" and all(isinstance(each, int) for each in values):
        return [*range(*(each for each in values if isinstance(each, int)))]
    if function == "product" and not words:
        return [[*row] for row in itertools.product(*map(_items, values))]
    raise ComputedError


_READERS: dict[type[ast.expr], Callable[..., object]] = {
    ast.Constant: _constant,
    ast.Lambda: lambda _node, _scope: _COUNTED,
    ast.Dict: lambda _node, _scope: _COUNTED,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.UnaryOp: _negative,
    ast.Attribute: _attribute,
    ast.Name: _name,
    ast.Call: _call,
}
