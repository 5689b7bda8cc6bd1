import sys
import types

import pytest

from cairn.build.inputs import source_tree


def test_the_module_preloads_in_order_and_checks_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, object]] = []
    sdk = types.ModuleType("rocm_sdk")
    sdk.initialize_process = lambda **given: calls.append(given)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rocm_sdk", sdk)
    space: dict[str, object] = {}
    exec(source_tree.rocm_init_module(preloads=("amdhip64", "hipblas"), rocm_version="7.10.0"), space)  # noqa: S102
    initialize = space["initialize"]
    assert callable(initialize)
    initialize()
    assert calls == [{"preload_shortnames": ["amdhip64", "hipblas"], "check_version": "7.10.0"}]


def test_no_preloads_is_an_empty_list() -> None:
    assert "preload_shortnames=[]" in source_tree.rocm_init_module(preloads=(), rocm_version="1")
