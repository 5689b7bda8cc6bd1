"""`pytest --torchdevice`: tests that say "cuda" run on the device there is."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--torchdevice`, and `--torchdevice-to` for another device than the best there is."""
    group = parser.getgroup("torchdevice")
    group.addoption(
        "--torchdevice", action="store_true", help='have tests that say "cuda" run on what there is'
    )
    group.addoption(
        "--torchdevice-to",
        metavar="DEVICE",
        choices=("cuda", "mps", "cpu"),
        help="the same, on cuda, mps or cpu",
    )
    group.addoption(
        "--torchdevice-strict",
        action="store_true",
        help="the same, where tensors say cuda:0 and mixed devices are PyTorch's errors",
    )


def _asked(options: Any) -> bool:
    return bool(options.torchdevice or options.torchdevice_to or options.torchdevice_strict)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest.py imports torch's functions by name."""
    options = early_config.known_args_namespace
    if _asked(options):
        import torchdevice

        torchdevice.enable(options.torchdevice_to, strict=options.torchdevice_strict or None)
        early_config.add_cleanup(_disable)


def _disable() -> None:
    import torchdevice

    torchdevice.disable()


def pytest_report_header(config: pytest.Config) -> str | None:
    """What was translated is no evidence about a GPU, and every log says so."""
    if not _asked(config.option):
        return None
    import torchdevice

    route = torchdevice.status()
    if route is None or route.native:
        return "torchdevice: off, CUDA is native here"
    strictly = ", strictly" if route.strict else ""
    return f'torchdevice: "cuda" is translated to {route.target}{strictly}'
