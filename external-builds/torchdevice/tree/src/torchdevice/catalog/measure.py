"""Calls each function in a process of its own, on the CPU and as code that says "cuda" does here.

A process is forked for each call, so that none sees what another has set, and a crash or an endless wait is
the result of one row. The file system is a temporary folder, and there is no network.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

import torch

import torchdevice
from torchdevice import matrix
from torchdevice.catalog import calls
from torchdevice.catalog.functions import Function
from torchdevice.errors import RefusedError
from torchdevice.matrix import Status

_SECONDS = 10.0
# How torch says that it needs a GPU.
_NEEDS_GPU = (
    "compiled with CUDA",
    "No CUDA GPUs",
    "ATen_cuda",
    "compiled without CUDA",
    "CUDA driver",
    "Cannot access accelerator",
)


class Outcome(Enum):
    """What a call did."""

    RETURNED = "returned"
    RAISED = "raised"  # torch's own error: nothing that we give it suits the function
    VALUE = "a value"  # nothing to call
    REFUSED = "refused"  # an error that says it takes a GPU
    DIED = "died"  # the process ended, or had to be ended
    NOT_CALLED = "not called"  # there is no such function here


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One call: what it did, and the type of the result, or the error."""

    outcome: Outcome
    what: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A function, called on the CPU with torchdevice off, and as "cuda" with it on."""

    function: Function
    cpu: Measured
    cuda: Measured


def measure(functions: Iterable[Function]) -> Iterator[Row]:
    """Call each function twice.

    Raises:
        OSError: this system cannot fork.
    """
    if not hasattr(os, "fork"):
        raise OSError("the catalogue is measured in forked processes, which this system has not")
    rows = list(functions)
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    on_cpu = [_isolated(function, "cpu") for function in rows]
    with torchdevice.redirected():
        as_cuda = [_isolated(function, "cuda") for function in rows]
    for function, cpu, cuda in zip(rows, on_cpu, as_cuda, strict=True):
        yield Row(function=function, cpu=cpu, cuda=cuda)


def _isolated(function: Function, device: str) -> Measured:
    if function.status is Status.ABSENT and matrix.find(function.path) is None:
        return Measured(outcome=Outcome.NOT_CALLED)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that threads and forks do not go together
        process = os.fork()
    if process == 0:
        os.close(reading)
        _child(function, device, writing)
    os.close(writing)
    try:
        return _result(process, reading)
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # and what it has started


def _result(process: int, reading: int) -> Measured:
    said = b""
    until = time.monotonic() + _SECONDS
    while (left := until - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
        part = os.read(reading, 65536)
        said += part
        if not part or said.endswith(b"\n"):
            break
    if not said.endswith(b"\n"):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        _, code = os.waitpid(process, 0)
        ended = os.waitstatus_to_exitcode(code)
        late = time.monotonic() >= until
        return Measured(outcome=Outcome.DIED, what=f"no end in {_SECONDS:.0f} s" if late else f"exit {ended}")
    os.waitpid(process, 0)
    outcome, what = json.loads(said)
    return Measured(outcome=Outcome(outcome), what=what)


def _child(function: Function, device: str, writing: int) -> NoReturn:
    """Call the function, write what it did, and end without anything that waits for the end."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            socket.socket.connect = _no_network  # type: ignore[method-assign]
            warnings.simplefilter("ignore")
            found = _call(function, device)
        os.write(writing, f"{json.dumps([found.outcome.value, found.what])}\n".encode())
    finally:
        os._exit(0)


def _no_network(*_args: Any) -> NoReturn:
    raise OSError("a measurement has no network")


def _call(function: Function, device: str) -> Measured:
    called = matrix.find(function.path)
    if not callable(called) or getattr(called, "__module__", "") in ("typing", "types", "collections.abc"):
        return Measured(outcome=Outcome.VALUE, what=_type_name(called))
    errors: list[BaseException] = []
    for call in calls.calls(function.path, called, function.arguments, device):
        try:
            return Measured(outcome=Outcome.RETURNED, what=_type_name(call()))
        except BaseException as error:  # noqa: BLE001 - SystemExit, too, is what a function did
            if isinstance(error, RefusedError) or any(text in str(error) for text in _NEEDS_GPU):
                return Measured(outcome=Outcome.REFUSED, what=_first_line(error))
            errors.append(error)
    # The first that is not about the number of arguments tells most.
    telling = next((error for error in errors if not isinstance(error, TypeError)), errors[0])
    return Measured(outcome=Outcome.RAISED, what=_first_line(telling))


def _type_name(value: Any) -> str:
    return type(value).__name__


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0][:160]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
