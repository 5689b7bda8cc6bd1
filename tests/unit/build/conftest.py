from pathlib import Path

import pytest

from cairn.build.model import BuildRequest
from helpers.build import MakeRequest, request, stand_in_compiler


@pytest.fixture
def build_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, where environments of builds are made anew."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def request_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRequest:
    """Makes the request to build projects, given by name and the text of their build backend."""
    # These builds compile nothing; the stack's demand for a compiler must not make a test need one.
    stand_in_compiler(tmp_path / "bin", monkeypatch)

    def make(**backends: str) -> BuildRequest:
        return request(tmp_path, backends)

    return make
