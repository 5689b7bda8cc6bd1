"""The translation engine: device values, and the functions that take them.

What a function takes for a device is read from its signature, and for functions written in C++ from the
schemas that torch itself parses arguments by: never from how a string looks.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from torchdevice import errors
from torchdevice.router import Route

Function = Callable[..., Any]

# What a GPU may be called; each leads where "cuda" does, unless it is what computes here.
GPUS = frozenset({"cuda", "hip", "mps", "mtia", "xpu"})

# Before anything is patched: `torch.device` and `torch.Generator` are stand-ins later.
RealDevice = torch.device
RealGenerator = torch.Generator
named_device = functools.cache(RealDevice)  # of a text, and of a type and an ordinal: asked for all the time


class _State:
    """Where "cuda" leads now. None: torchdevice is off, and what it left passes all through."""

    route: Route | None = None
    answers: dict[Any, Any] = {}  # noqa: RUF012 - replaced as a whole, so that readers need no lock


def set_route(route: Route | None) -> None:
    """Start translating by this route, or stop."""
    _State.answers = {}
    _State.route = route


def route() -> Route | None:
    """The route in force."""
    return _State.route


def is_strict() -> bool:
    """Whether tensors say that they are on a GPU."""
    return _State.route is not None and _State.route.strict


def shown(index: int) -> torch.device:
    """What a tensor on the GPU of an ordinal says of where it is."""
    return named_device("cuda", index) if is_strict() else RealDevice(translate("cuda"))


def translate(value: Any) -> Any:
    """The device that stands in for `value`, whatever form it has: a string, a `torch.device`, an ordinal.

    What does not mean a GPU comes back as it is, also what no device can be: torch says so itself.

    Raises:
        RuntimeError: an ordinal beyond the devices of the route.
    """
    # Both are read once: another thread may disable torchdevice meanwhile.
    route, answers = _State.route, _State.answers
    if route is None or value is None:
        return value
    kind = type(value)
    if kind is str or kind is int or kind is RealDevice:  # `True == 1 == 1.0`, but only an int is an ordinal
        answer = answers.get(value)
        if answer is None:
            answer = _translate(value, route)
            if len(answers) < 1024:
                answers[value] = answer
        return answer
    return _translate(value, route)


def is_ordinal(value: Any) -> bool:
    """Whether torch takes a value for an ordinal: an int, also NumPy's, but not a bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _translate(value: Any, route: Route) -> Any:
    if is_ordinal(value):
        _check_ordinal(int(value), route)
        return RealDevice(route.target)
    if isinstance(value, str):
        try:
            device = RealDevice(value)
        except RuntimeError:  # not a device: torch says so, in its own words
            return value
        if not _leads_elsewhere(device, route):
            return value
        _check_ordinal(device.index or 0, route)
        return route.target
    if isinstance(value, RealDevice) and _leads_elsewhere(value, route):
        _check_ordinal(value.index or 0, route)
        return RealDevice(route.target)
    return value


def _leads_elsewhere(device: torch.device, route: Route) -> bool:
    return device.type in GPUS and device.type != route.target


def _check_ordinal(index: int, route: Route) -> None:
    if not 0 <= index < route.count:
        raise errors.invalid_ordinal(index, route.count)


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A parameter that takes a device.

    Attributes:
        name: as a keyword.
        position: among the positional arguments (`self` counts), or None where it is keyword-only.
        default: what the function uses when nothing is given.
    """

    name: str
    position: int | None = None
    default: Any = None


def find_arguments(function: Function, schema: str, names: Iterable[str]) -> tuple[Argument, ...]:
    """The parameters of `function` that take a device and are called one of `names`.

    Args:
        function: of Python or of C++.
        schema: the name under which torch registered a function of C++, `aten::zeros`.
        names: the parameter names that mean a device.
    """
    wanted = set(names)
    if isinstance(function, type) or inspect.isfunction(inspect.unwrap(function)):
        return _python_arguments(function, wanted)
    positions: dict[str, set[int | None]] = {}
    for overload in torch._C._jit_get_schemas_for_operator(schema):
        for index, argument in enumerate(overload.arguments):
            if argument.name in wanted and "Device" in str(argument.type):
                positions.setdefault(argument.name, set()).add(None if argument.kwarg_only else index)
    # Where overloads differ, it takes a function of its own to tell them apart (`Tensor.to`).
    return tuple(Argument(name=name, position=at.pop()) for name, at in positions.items() if len(at) == 1)


def _python_arguments(function: Function, wanted: set[str]) -> tuple[Argument, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return ()
    found = []
    for index, parameter in enumerate(parameters):
        if parameter.name in wanted:
            keyword_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            default = None if parameter.default is inspect.Parameter.empty else parameter.default
            at = None if keyword_only else index
            found.append(Argument(name=parameter.name, position=at, default=default))
    return tuple(found)


def wrap(function: Function, arguments: tuple[Argument, ...]) -> Function:
    """`function`, called with devices translated. Signature, name and documentation stay."""
    if len(arguments) == 1 and arguments[0].position is None and arguments[0].default is None:
        return _wrap_keyword(function, arguments[0].name)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for argument in arguments:
            at = argument.position
            if argument.name in kwargs:
                kwargs[argument.name] = translate(kwargs[argument.name])
            elif at is not None and at < len(args):
                args = (*args[:at], translate(args[at]), *args[at + 1 :])
            elif argument.default is not None:
                kwargs[argument.name] = translate(argument.default)
        try:
            return function(*args, **kwargs)
        except TypeError:
            return _asked_again(wrapper, args, kwargs)

    return wrapper


def _wrap_keyword(function: Function, name: str) -> Function:
    # The factories are called with every tensor that is made: as little as possible happens here.
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if name in kwargs:
            kwargs[name] = translate(kwargs[name])
        if "pin_memory" in kwargs and _State.route is not None:
            kwargs["pin_memory"] = False  # memory that no GPU copies from is not pinned
        try:
            return function(*args, **kwargs)
        except TypeError:
            return _asked_again(wrapper, args, kwargs)

    return wrapper


def _asked_again(wrapper: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Ask what is like a tensor a second time, by the function that it may know; else raise what was raised.

    A library's table of torch's functions has the wrapper where the library was imported while enabled.
    """
    kind: Any = type(args[0]) if args else object
    if issubclass(kind, torch.Tensor) or not hasattr(kind, "__torch_function__"):
        raise  # noqa: PLE0704 - in an except clause
    answer = kind.__torch_function__(wrapper, (kind,), args, kwargs)
    if answer is NotImplemented:
        raise  # noqa: PLE0704
    return answer


class StandIn(type):
    """The class of stand-ins for classes of C++ that take a device, and that cannot be patched.

    A stand-in makes objects of the real class. To `isinstance`, `==`, dictionaries and class statements it is
    the real class; only `is` tells them apart.
    """

    real: type
    path: str
    note: str

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if any(isinstance(base, StandIn) for base in bases):
            real = tuple(base.real if isinstance(base, StandIn) else base for base in bases)
            return type(real[0])(name, real, namespace)
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (translate(args[0]), *args[1:])
        elif "device" in kwargs:
            kwargs["device"] = translate(kwargs["device"])
        return cls.real(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass.real if isinstance(subclass, StandIn) else subclass, cls.real)

    def __eq__(cls, other: object) -> bool:
        return other is cls.real or other is cls

    def __hash__(cls) -> int:
        return hash(cls.real)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.real, name)

    def __repr__(cls) -> str:
        return repr(cls.real)


class DeviceStandIn(StandIn):
    """The class of the stand-in for `torch.device`, which has several forms: `device("cuda", index=1)`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        route = _State.route
        if route is None:
            return cls.real(*args, **kwargs)
        if len(args) == 1 and is_ordinal(args[0]):  # without a GPU, torch knows no ordinals
            return translate(args[0])
        made = cls.real(*args, **kwargs)
        # As with CUDA, a device that is not there has a name; it is an error to go there.
        return made if (made.index or 0) >= route.count else translate(made)


class Making(StandIn):
    """The class of stand-ins that make objects by a function of their own."""

    make: Function

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.real(*args, **kwargs) if _State.route is None else cls.make(cls.real, *args, **kwargs)


class Refusing(StandIn):
    """The class of stand-ins for classes of which no objects can be made without a GPU."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if _State.route is not None:
            raise errors.refusal(cls.path, cls.note)
        return cls.real(*args, **kwargs)


def stand_in(real: type) -> StandIn:
    """A stand-in for `torch.device`, or for a class whose first argument is a device."""
    return _stand_in(DeviceStandIn if real is RealDevice else StandIn, real)


def stand_in_by(real: type, make: Function) -> StandIn:
    """A stand-in whose objects `make` makes, called with the real class and the arguments."""
    return _stand_in(Making, real, make=staticmethod(make))


def refusing_class(real: type, path: str, note: str) -> StandIn:
    """A stand-in for a class of GPU objects: `isinstance` goes on working, making one is refused."""
    return _stand_in(Refusing, real, path=path, note=note)


def _stand_in(kind: type[StandIn], real: type, **more: Any) -> StandIn:
    # Pickled objects name their class: by these names it is found again, with or without torchdevice.
    names = {name: getattr(real, name) for name in ("__module__", "__qualname__", "__doc__")}
    made: StandIn = kind(real.__name__, (), {**names, "real": real, **more})
    return made
