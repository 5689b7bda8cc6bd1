import pytest

from cairn.cli import rocm as rocm_fetch
from cairn.errors import UsageError
from cairn.rocm.fetch import choose
from cairn.rocm.fetch.choose import Run


def test_a_run_is_where_the_layout_of_the_outputs_says() -> None:
    assert Run(id="123", platform="linux").places() == (
        "s3://therock-ci-artifacts/123-linux",
        "s3://therock-ci-artifacts-external/ROCm-TheRock/123-linux",
    )
    fork = Run(id="123", platform="windows", repository="somebody/TheRock")
    assert fork.places() == ("s3://therock-ci-artifacts-external/somebody-TheRock/123-windows",)
    nightly = Run(id="123", platform="linux", release_type="nightly-bkc")
    assert nightly.places() == ("s3://therock-nightly-artifacts/123-linux",)


@pytest.mark.parametrize(
    "text", ["", "latest", "../123", "https://github.com/ROCm/TheRock/actions/runs/1", "1 "]
)
def test_what_is_no_run(text: str) -> None:
    with pytest.raises(UsageError, match="not the id of a run"):
        Run(id=text, platform="linux")


@pytest.mark.parametrize("text", ["TheRock", "a/b/c", "a/../b", ""])
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(UsageError, match="not a repository"):
        Run(id="1", platform="linux", repository=text)


def test_the_command_line_knows_every_release_type() -> None:
    assert rocm_fetch.RELEASE_TYPES == choose.RELEASE_TYPES
