"""The interpreters that suites run on: each with a version of pytest that the shipped suite.toml allows."""

from pathlib import Path

import pytest

from helpers import pytests


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test under the newest pytest below 9; those marked `every_pytest` under the others too."""
    if "python" in metafunc.fixturenames:
        every = pytests.ALL or metafunc.definition.get_closest_marker("every_pytest")
        names = list(pytests.VERSIONS) if every else list(pytests.VERSIONS)[:1]
        metafunc.parametrize("python", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def python(request: pytest.FixtureRequest, base_of_workers: Path) -> Path:
    """An interpreter with pytest and the plugins of others."""
    return pytests.install(base_of_workers / request.param, request.param)
