"""Disabled, torch is as it was: every attribute of every module and class of it, by identity."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import pytest
import torch
import torchdevice

# Made by torch itself when it is first asked for.
_MADE_LATER = {("torch.jit._builtins", "_builtin_table"), ("torch.overrides", "__warningregistry__")}
# What dynamo counts with; its `reset`, without which compiled code would keep the device, makes them anew.
_COUNTERS = {"COMPILE_COUNTER", "generation_values", "dynamic_classes"}


def photograph() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] != "torch" or module is None:
            continue
        for name, value in list(vars(module).items()):
            found[module_name, name] = value
            if issubclass(type(value), type) and value.__module__.startswith("torch"):
                for attribute, inner in list(vars(value).items()):
                    found[f"{module_name}.{name}", attribute] = inner
    return found


def differences(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> list[str]:
    both = before.keys() | after.keys()
    missing = object()
    changed = [key for key in both if before.get(key, missing) is not after.get(key, missing)]
    # Each look at some attributes of C++ makes an object: the same photograph twice tells them.
    counters = {key for key in changed if key[0].startswith("torch._dynamo") and key[1] in _COUNTERS}
    return sorted(".".join(key) for key in changed if key not in _MADE_LATER | counters)


@pytest.fixture(scope="module")
def unstable() -> set[str]:
    return set(differences(photograph(), photograph()))


def test_the_first_time(unstable: set[str]) -> None:
    before = photograph()
    torchdevice.enable("cpu")
    during = photograph()
    torchdevice.disable()
    assert len(differences(before, during)) > 200
    assert set(differences(before, photograph())) <= unstable


def test_a_hundred_times_nested_from_threads_and_after_exceptions(unstable: set[str]) -> None:
    before = photograph()
    for _ in range(25):
        torchdevice.enable("cpu")
        with torchdevice.redirected():
            torch.zeros(1, device="cuda").cuda()
        with pytest.raises(ZeroDivisionError), torchdevice.redirected("cpu"):
            raise ZeroDivisionError
        assert torch.cuda.is_available()
        assert torchdevice.disable()

    def use() -> None:
        for _ in range(25):
            with torchdevice.redirected("cpu"):
                assert torch.ones(1, device="cuda:0").to(0).device.type == "cpu"

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torchdevice.status() is None
    assert set(differences(before, photograph())) <= unstable


def test_strict_too(unstable: set[str]) -> None:
    with torchdevice.redirected("cpu", strict=True):  # the first time, modules of torch are imported
        torch.ones(2, 2, device="cuda") * torch.tensor(2.0)
    before = photograph()
    with torchdevice.redirected("cpu", strict=True), pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2)
    assert set(differences(before, photograph())) <= unstable


def test_disable_without_enable_does_nothing() -> None:
    assert torchdevice.disable()
    assert not torch.cuda.is_available()


def test_another_target_while_enabled_is_refused() -> None:
    with torchdevice.redirected("cpu"):
        for target, count in (("cpu", 3), ("mps", None)):
            with pytest.raises(RuntimeError, match="enabled already"):
                torchdevice.enable(target, count=count)
        with torchdevice.redirected("auto"), torchdevice.redirected(count=1):
            assert torch.zeros(1, device="cuda").device.type == "cpu"


def test_threads_that_work_while_another_enables_and_disables() -> None:
    failures: list[Exception] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                assert torch.zeros(2, device="cpu").to("cpu", torch.float64).new_ones(1).sum() == 1
                torch.device("cpu")
                torch.cuda.is_available()
            except Exception as error:  # noqa: BLE001 - whatever it is
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        with torchdevice.redirected("cpu"):
            torch.zeros(1, device="cuda")
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_failure_while_enabling_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    before = photograph()
    # A torch whose insides are others than we know.
    monkeypatch.delattr("torch.jit._builtins._get_builtin_table")
    with pytest.raises(AttributeError, match="_get_builtin_table"):
        torchdevice.enable("cpu")
    monkeypatch.undo()
    assert torchdevice.status() is None
    assert torch.zeros is before["torch", "zeros"]
    assert "to" not in vars(torch.Tensor)


def in_a_thread(function: Any) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_log_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_record: logging.LogRecord) -> bool:
        raise ZeroDivisionError

    monkeypatch.delenv("TORCHDEVICE_ANNOUNCED", raising=False)
    log = logging.getLogger("torchdevice")
    log.addFilter(fail)
    try:
        for strict in (False, True):
            monkeypatch.delenv("TORCHDEVICE_ANNOUNCED", raising=False)
            with pytest.raises(ZeroDivisionError):
                torchdevice.enable("cpu", strict=strict)
            assert torchdevice.status() is None
            assert torch.zeros is torch._C._VariableFunctions.zeros
            assert torch._C._len_torch_function_stack() == 0
    finally:
        log.removeFilter(fail)


def test_strict_that_another_thread_disables() -> None:
    torchdevice.enable("cpu", strict=True)
    x = torch.ones(2, device="cuda")
    in_a_thread(torchdevice.disable)
    assert torchdevice.status() is None
    assert x.device.type == "cpu"
    assert (x + torch.ones(2)).device.type == "cpu"
    with torchdevice.redirected("cpu"):
        assert torch._C._len_torch_function_stack() == 0
        assert x.device.type == "cpu"
    torchdevice.enable("cpu", strict=True)
    in_a_thread(torchdevice.disable)
    with torchdevice.redirected("cpu", strict=True):
        assert x.device == torch.device("cuda:0")
    assert torch._C._len_torch_function_stack() == 0


def test_a_thread_of_strict_that_lives_on_sees_the_truth_in_redirect() -> None:
    said: list[str] = []
    made, go = threading.Event(), threading.Event()

    def work() -> None:
        x = torch.ones(1, device="cuda")
        said.append(str(x.device))
        made.set()
        go.wait()
        said.append(str(x.device))

    with torchdevice.redirected("cpu", strict=True):
        thread = threading.Thread(target=work)
        thread.start()
        made.wait()
    with torchdevice.redirected("cpu"):
        go.set()
        thread.join()
    assert said == ["cuda:0", "cpu"]


def test_strict_in_a_thread_that_asks_for_it_too() -> None:
    ready, enabled, seen = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        ready.set()
        enabled.wait()
        with torchdevice.redirected(strict=True):
            seen.append(str(torch.ones(1, device="cuda").device))

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    with torchdevice.redirected("cpu", strict=True):
        enabled.set()
        thread.join()
    assert seen == ["cuda:0"]


def test_a_default_device_of_strict_ends_with_it() -> None:
    for before in (None, "meta"):
        torch.set_default_device(before)
        with torchdevice.redirected("cpu", strict=True):
            torch.set_default_device("cuda")
            assert torch.ones(1).is_cuda
        assert torch.ones(1).device.type == (before or "cpu")
    torch.set_default_device(None)


@pytest.mark.parametrize("strict", [False, True])
def test_the_current_device_and_stream_end_with_it(strict: bool) -> None:
    with torchdevice.redirected("cpu", count=4, strict=strict):
        torch.cuda.set_device(3)
        torch.cuda.set_stream(torch.cuda.Stream())
        assert (torch.cuda.current_device(), torch.cuda.current_stream().device_index) == (3, 3)
    with torchdevice.redirected("cpu", count=1, strict=strict):
        assert (torch.cuda.current_device(), torch.cuda.current_stream().device_index) == (0, 0)
        with torch.cuda.device(0):
            pass
        assert torch.cuda.current_device() == 0


def test_torchscript_that_others_switched_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    torchdevice.enable("cpu", strict=True)
    torch.jit._state.enable()
    torchdevice.disable()
    assert "enabled" in caplog.text
    assert torch.jit._state._enabled.enabled
    assert torch.zeros is torch._C._VariableFunctions.zeros


def test_what_others_patched_meanwhile_stays_and_works(caplog: pytest.LogCaptureFixture) -> None:
    native = torch.zeros
    torchdevice.enable("cpu")
    ours = torch.zeros

    def theirs(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    torch.zeros = theirs
    try:
        torchdevice.disable()
        assert torch.zeros is theirs
        assert "torch.zeros" in caplog.text
        assert torch.zeros(2).shape == (2,)
        with pytest.raises(AssertionError, match="not compiled with CUDA"):
            torch.zeros(2, device="cuda")
    finally:
        torch.zeros = native


def test_what_was_imported_while_enabled_is_harmless_after() -> None:
    with torchdevice.redirected("cpu"):
        from torch import device, ones
        from torch.cuda import CUDAGraph, Event, Stream, is_available, memory_allocated
    assert device("cuda").type == "cuda"
    assert ones(1, device="cpu").device.type == "cpu"
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        ones(1, device="cuda")
    assert not is_available()
    assert memory_allocated() == 0
    with pytest.raises(RuntimeError, match="dummy"):
        CUDAGraph()
    for kept in (Stream, Event):
        with pytest.raises(RuntimeError, match="requires CUDA support"):
            kept()


def test_what_was_imported_before_takes_devices_made_while_enabled() -> None:
    from torch import device, zeros

    with torchdevice.redirected("cpu"):
        assert zeros(1, device=torch.device("cuda")).device.type == "cpu"
        assert torch.zeros(1, device=device("cuda")).device.type == "cpu"


def test_default_device_contexts_work_after(run: Any) -> None:
    """torch compares the function that is called with a table it makes once."""
    run(
        "import torch, torchdevice\n"
        "with torchdevice.redirected('cpu'):\n"
        "    with torch.device('cuda'):\n"
        "        assert torch.zeros(1).device.type == 'cpu'\n"
        "with torch.device('meta'):\n"
        "    assert torch.zeros(1).is_meta\n"
    )
