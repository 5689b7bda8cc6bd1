"""`pytest --torchdevice`: tests that say "cuda" run on the device there is."""

from __future__ import annotations

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


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest.py imports torch's functions by name."""
    options = early_config.known_args_namespace
    if options.torchdevice or options.torchdevice_to:
        import torchdevice

        torchdevice.enable(options.torchdevice_to)
        early_config.add_cleanup(_disable)


def _disable() -> None:
    import torchdevice

    torchdevice.disable()


def pytest_report_header(config: pytest.Config) -> str | None:
    """What was translated is no evidence about a GPU, and every log says so."""
    if not (config.getoption("torchdevice") or config.getoption("torchdevice_to")):
        return None
    import torchdevice

    route = torchdevice.status()
    if route is None or route.native:
        return "torchdevice: off, CUDA is native here"
    return f'torchdevice: "cuda" is translated to {route.target}'
