"""What holds for every test."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def temporary_files_of_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever a killed program, or clang, leaves behind goes with the other files of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        if os.name == "posix":
            patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        yield
