"""`redirect`: functions of torch are replaced, and devices truthfully say where tensors are."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchdevice import errors, interceptor, matrix, monitoring, processes, router, translation
from torchdevice import features as flags
from torchdevice.emulation import precision
from torchdevice.matrix import Entry, Status
from torchdevice.router import Route
from torchdevice.strict import patches
from torchdevice.translation import Function

_log = logging.getLogger("torchdevice")
_changing = threading.RLock()


class _State:
    nesting: int = 0
    route: Route | None = None
    undo_log: interceptor.UndoLog | None = None


def enable(
    target: str | None = None,
    *,
    count: int | None = None,
    strict: bool | None = None,
    features: str | None = None,
) -> Route:
    """Have code that says "cuda" run on what there is, in the whole process.

    On a machine with CUDA or ROCm nothing is changed. Each call takes a `disable` of its own.

    Args:
        target: "cuda", "mps" or "cpu"; without, or with "auto", the environment's TORCHDEVICE, else the best
            there is.
        count: the number of devices to show; else TORCHDEVICE_COUNT, else one for each local rank.
        strict: say that tensors are on the GPU, and raise PyTorch's errors where devices are mixed; else as
            TORCHDEVICE_STRICT says.
        features: what is to be off or on, "-distributed,+monitor"; else as TORCHDEVICE_FEATURES says.

    Returns:
        Where "cuda" leads.

    Raises:
        RuntimeError: the target is not on this machine, or torchdevice is enabled with another one.
        ValueError: the target or the count makes no sense.
    """
    with _changing:
        if _State.route is not None:
            now = _State.route
            if (
                target not in (None, "auto", now.target)
                or count not in (None, now.count)
                or strict not in (None, now.strict)
                or features not in (None, now.features)
            ):
                raise RuntimeError(f"torchdevice is enabled already, with {now}; disable it first")
        else:
            text = os.environ.get("TORCHDEVICE_FEATURES", "") if features is None else features
            flags.chosen(text)
            route = dataclasses.replace(router.decide(target, count, strict=strict), features=text)
            if not route.native:
                _State.undo_log = _install(route)
            _State.route = route
        if _State.route.strict:
            patches.enter()  # a thread of its own may be the one that asks now
        _State.nesting += 1
        return _State.route


def disable() -> bool:
    """Undo one `enable`. With the last, torch is as it was, by the identity of every attribute.

    Returns:
        Whether torchdevice is off now.
    """
    with _changing:
        _State.nesting = max(0, _State.nesting - 1)
        if _State.nesting == 0:
            if _State.undo_log is not None:
                _uninstall(_State.undo_log)
            _State.undo_log = _State.route = None
        return _State.nesting == 0


@contextlib.contextmanager
def redirected(
    target: str | None = None,
    *,
    count: int | None = None,
    strict: bool | None = None,
    features: str | None = None,
) -> Iterator[Route]:
    """`enable` for the length of a block; the arguments are the same."""
    route = enable(target, count=count, strict=strict, features=features)
    try:
        yield route
    finally:
        disable()


def status() -> Route | None:
    """Where "cuda" leads, or None while torchdevice is off."""
    return _State.route


def _install(route: Route) -> interceptor.UndoLog:
    # Everything is read before the first patch: signatures are torch's own, and a mistake changes nothing.
    on = flags.chosen(route.features)
    planned = [
        (entry, *_replacement(entry, route))
        for entry in matrix.entries()
        if entry.feature in on
        and (entry.in_strict or not route.strict)
        and not f"{entry.owner}.".startswith(f"torch.{route.target}.")  # what computes is torch's own
    ]
    interceptor.make_lasting_tables()
    patches.leave()  # a mode that another thread's `disable` could not take away
    log = interceptor.UndoLog()
    try:
        for entry, old, new in planned:
            _put(log, entry, old, new, counted="monitor" in on)
        processes.install(log, route)
        if "amp" in on and route.target == "cpu":
            precision.install(log)
        if route.strict:
            patches.install(log)
        log.when_imported(
            {
                module: functools.partial(_put_in_library, log, entry, route)
                for module, entry in matrix.libraries()
                if entry.feature in on and (entry.in_strict or not route.strict)
            }
        )
        interceptor.forget_tables()
        _announce(route)
    except BaseException:
        patches.leave()
        log.undo()
        raise
    translation.set_route(route)
    return log


def _put(log: interceptor.UndoLog, entry: Entry, old: Any, new: Any, *, counted: bool) -> None:
    if new is None:
        return
    if counted and isinstance(new, types.FunctionType):
        new = monitoring.counted(entry.path, new)
    log.replace(matrix.find(entry.owner), entry.name, new)
    log.script_as(new, old)
    for other in entry.also:
        module = matrix.find(other)
        if module is not None and vars(module).get(entry.name) is old:
            log.replace(module, entry.name, new)


def _put_in_library(log: interceptor.UndoLog, entry: Entry, route: Route) -> None:
    if matrix.find(entry.owner) is not None:  # not in every version of the library
        _put(log, entry, *_replacement(entry, route), counted=False)


def _uninstall(log: interceptor.UndoLog) -> None:
    patches.leave()
    translation.set_route(None)
    for name in log.undo():
        _log.warning("torchdevice: %s was replaced by other code since, and is left so", name)
    interceptor.forget_tables()


def _replacement(entry: Entry, route: Route) -> tuple[Any, Any]:
    """What an entry's object is, and what to put there; None for nothing."""
    owner = matrix.find(entry.owner)
    old = getattr(owner, entry.name, None)
    if old is None:
        return old, entry.code if entry.added and owner is not None else None
    if entry.status is Status.REFUSED:
        return old, _refusing(old, entry)
    if entry.status is Status.TRANSLATED:
        return old, _translated(old, entry)
    if entry.status is Status.EMULATED:
        return old, _emulated(old, entry, route)
    return old, None


def _translated(original: Any, entry: Entry) -> Any:
    if entry.by:
        return entry.code(original)
    arguments = translation.find_arguments(original, matrix.schema(original), entry.arguments)
    return translation.wrap(original, arguments)


def _emulated(original: Any, entry: Entry, route: Route) -> Any:
    if not callable(original):  # a value, and a function that makes it
        return entry.code(route)
    return entry.code if isinstance(original, type) else _answering(original, entry.code)


def _answering(original: Function, answer: Function) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if translation.route() is None:
            return original(*args, **kwargs)
        return answer(*args, **kwargs)

    return wrapper


def _refusing(original: Any, entry: Entry) -> Any:
    if isinstance(original, type):
        return translation.refusing_class(original, entry.path, entry.note)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if translation.route() is None:
            return original(*args, **kwargs)
        raise errors.refusal(entry.path, entry.note)

    return wrapper


def _announce(route: Route) -> None:
    if os.environ.get("TORCHDEVICE_REPORT"):
        monitoring.write_at_end(Path(os.environ["TORCHDEVICE_REPORT"]))
    # Once, and not again in every process that is started from this one.
    if "TORCHDEVICE_ANNOUNCED" not in os.environ:
        os.environ["TORCHDEVICE_ANNOUNCED"] = str(os.getpid())
        _log.warning('torchdevice: "cuda" runs on %s here; what torch.cuda answers is emulated', route.target)


def _after_fork() -> None:
    # Another thread of the parent may have held it; the child has only this one.
    global _changing
    _changing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
