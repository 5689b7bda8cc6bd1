"""Streams and events: work is done in program order, and time is the host's."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Self

import torch

from torchdevice import errors, translation
from torchdevice.emulation import devices
from torchdevice.router import Route

_ids = itertools.count(1)
_MODES = {"default": 0, "warn": 1, "error": 2}
_sync_debug_mode = 0


def _require_enabled(name: str) -> None:
    # Other modules may have kept the class from while torchdevice was enabled.
    if translation.route() is None:
        raise RuntimeError(f"{name} requires CUDA support")


class _Generic(type):
    """The class of `torch.Stream` and `torch.Event`, of which those of torch.cuda are kinds."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[-2])


class Stream:
    """A queue of work that is always empty: what is put into it is done at once."""

    device_type = 1  # c10's number of CUDA

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        _require_enabled("torch.cuda.Stream")
        self.device_index = devices.ordinal(device)
        self.device = translation.shown(self.device_index)
        self.priority = priority
        self.stream_id = kwargs.get("stream_id", next(_ids))
        self.cuda_stream = self.stream_id  # a handle for comparisons only

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority: there are none."""
        return 0, 0

    def wait_event(self, event: Any) -> None:
        """What the event waited for is done."""

    def wait_stream(self, stream: Any) -> None:
        """What the stream had to do is done."""

    def record_event(self, event: Event | None = None) -> Event:
        """Note the time in an event."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is done."""
        return True

    def is_capturing(self) -> bool:
        """Graphs are refused."""
        return False

    def synchronize(self) -> None:
        """All work is done."""

    def __enter__(self) -> Self:
        self._before = current_stream()
        set_stream(self)
        return self

    def __exit__(self, *_error: object) -> None:
        set_stream(self._before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:{self.device_index} emulated by torchdevice>"


class Event:
    """A moment of the host's clock."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        del blocking, external
        _require_enabled("torch.cuda.Event")
        if interprocess:
            raise errors.refusal("torch.cuda.Event(interprocess=True)", "use multiprocessing.Event.")
        self.enable_timing = enable_timing
        self._recorded: float | None = None

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        del stream
        self._recorded = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Work before the event is done."""

    def query(self) -> bool:
        """Whether the work before the event is done."""
        return True

    def synchronize(self) -> None:
        """Work before the event is done."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of the host's clock between two events.

        Raises:
            ValueError: one of them has not been made to be timed, or was not recorded.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded is None or end_event._recorded is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded - self._recorded) * 1000

    def ipc_handle(self) -> bytes:
        """Refused."""
        raise errors.refusal("torch.cuda.Event.ipc_handle", "use multiprocessing.Event.")


class AnyStream(Stream, metaclass=_Generic):
    """`torch.Stream(device)`."""


class AnyEvent(Event, metaclass=_Generic):
    """`torch.Event(device, enable_timing=…)`."""

    def __init__(self, device: Any = None, **options: Any) -> None:
        self.device = translation.shown(devices.ordinal(device))
        super().__init__(**options)


class _Current(threading.local):
    """As the current device, for as long as torchdevice is enabled."""

    kept: Stream | None = None
    route: Route | None = None

    @property
    def stream(self) -> Stream | None:
        return self.kept if self.route is translation.route() else None

    @stream.setter
    def stream(self, stream: Stream | None) -> None:
        self.kept, self.route = stream, translation.route()


_current = _Current()


def synchronize(device: Any = None) -> None:
    if translation.translate("cuda") == "mps":
        torch.mps.synchronize()
    devices.ordinal(device)


def complete() -> None:
    """All work is done."""


def ipc_collect() -> None:
    """Nothing was sent to other processes."""


def default_stream(device: Any = None) -> Stream:
    return Stream(device, stream_id=0)


def current_stream(device: Any = None) -> Stream:
    return _current.stream or default_stream(device)


def set_stream(stream: Any) -> None:
    if stream is not None:
        _current.stream = stream


def _cuda_setStream(  # noqa: N802 - torch's name
    stream_id: int, device_index: int, device_type: int
) -> None:
    del device_type
    _current.stream = Stream(device_index, stream_id=stream_id)


class StreamContext:
    """A stream that is current for the length of a block."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self._before = _current.stream
        set_stream(self.stream)

    def __exit__(self, *_error: object) -> None:
        _current.stream = self._before


def stream(stream: Any) -> StreamContext:
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    return False


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    del sample_args, num_warmup_iters, allow_unused_input, pool
    return callables


def set_sync_debug_mode(debug_mode: int | str) -> None:
    global _sync_debug_mode
    mode = _MODES.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if mode not in _MODES.values():
        raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
    _sync_debug_mode = mode


def get_sync_debug_mode() -> int:
    return _sync_debug_mode


_ranges: list[str] = []


def range_push(msg: str) -> int:
    _ranges.append(msg)
    return len(_ranges) - 1


def range_pop() -> int:
    if _ranges:
        _ranges.pop()
    return len(_ranges)


def range_start(msg: str) -> int:
    del msg
    return next(_ids)


def range_end(range_id: int) -> None:
    del range_id


def mark(msg: str) -> None:
    del msg


def start() -> None:
    """No profiler is told."""


def stop() -> None:
    """No profiler is told."""
