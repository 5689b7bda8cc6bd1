"""suite.toml, and the modules that it chooses."""

import os
import sys
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.testing.suite import sources, suite_toml
from cairn.testing.suite.sources import WheelVersion
from cairn.testing.suite.suite_toml import Config, Group
from cairn.testing.testing_options import Choice
from helpers.suites import suite_of

PYTORCH = Path(__file__).resolve().parents[4] / "external-builds" / "pytorch"
MODULES = (
    "test_nn",
    "test_nn_more",
    "inductor/test_x",
    "distributed/test_c10d",
    "distributed/bin/test_script",
)
CONFIG = Config(
    groups=(
        Group(modules=("test_nn",), environment={"A": "1"}),
        Group(modules=("distributed/**/test_*",), exclude=("distributed/bin/**",)),
    )
)


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    for name in MODULES:
        path = tmp_path / "test" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "test"


def test_the_suite_of_pytorch_is_read() -> None:
    suite = suite_toml.load(PYTORCH)
    assert list(suite.configs) == ["default", "distributed", "inductor", "full"]
    with pytest.raises(UsageError, match="no configuration 'inductr'") as caught:
        suite.config("inductr")
    assert caught.value.tip == "did you mean inductor?"


@pytest.mark.parametrize(
    ("version", "pinned"),
    [("2.7.1+rocm7.10.0", True), ("2.7.0a0", True), ("2.8.0", False), ("2.13.0", False), ("", True)],
)
def test_pytest_is_below_9_where_torch_needs_that_alone(version: str, pinned: bool) -> None:  # noqa: FBT001
    requires = suite_toml.load(PYTORCH).requires_of(version)
    assert ("pytest<9" in requires, "pytest>=8" in requires) == (pinned, True)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('requires_for = { "2.8" = ["pytest<9"] }', "'2.8' is not a range of versions"),
        ('requires_for = { "<2.8" = ["pytest<<9"] }', "'pytest<<9' is not a requirement"),
        ('requires = ["pytest 9"]', "'pytest 9' is not a requirement"),
        ('lists.A = { format = "times" }', "the list A needs a url or a path, and not both"),
        (
            'lists.A = { format = "times", url = "http://a/b", path = "b" }',
            "the list A needs a url or a path",
        ),
        ('lists.A = { format = "times", url = "ftp://a/b" }', "the list A has no address: 'ftp://a/b'"),
        ('lists.A = { format = "times", path = "../b" }', "the list A is not below the folder of tests"),
        ('lists."A=B" = { format = "times", path = "b" }', "'A=B' is not named like a variable"),
        ('lists.A = { format = "plain", path = "b" }', "at lists.*plain"),
    ],
)
def test_a_field_that_cannot_be_read_is_refused(tmp_path: Path, field: str, message: str) -> None:
    # Not the shipped suite: a field of it cannot be read here.
    head = 'schema = "cairn.suite/1"\nproject = "a"\ntests = "a"\nversion_module = "a"\nversion_file = "a"\n'
    # Not the shipped suite: it is to be wrong.
    (tmp_path / "suite.toml").write_text(f"{head}{field}\n[configs]\n", encoding="utf-8")
    with pytest.raises(UsageError, match=message) as refused:
        suite_toml.load(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / 'suite.toml'}")
    assert "\n" not in str(refused.value)


def test_modules_come_with_the_variables_of_their_group(tests: Path) -> None:
    assert suite_toml.choose(CONFIG, tests, Choice()) == {
        "test_nn.py": {"A": "1"},
        "distributed/test_c10d.py": {},
    }


@pytest.mark.parametrize("name", ["**test_nn*", "test_**", "test_**.py", "***"])
def test_two_stars_in_a_name_are_one(tests: Path, name: str) -> None:
    assert list(suite_toml.choose(CONFIG, tests, Choice(include=(name,)))) == [
        "test_nn.py",
        "test_nn_more.py",
    ]


def test_a_user_may_name_modules_as_upstream_does(tests: Path) -> None:
    choice = Choice(include=("inductor/test_x", "test_nn.py"))
    assert suite_toml.choose(CONFIG, tests, choice) == {"inductor/test_x.py": {}, "test_nn.py": {"A": "1"}}
    assert list(suite_toml.choose(CONFIG, tests, Choice(exclude=("test_nn",)))) == [
        "distributed/test_c10d.py"
    ]
    assert list(suite_toml.choose(CONFIG, tests, Choice(), without=["test_nn.py"])) == [
        "distributed/test_c10d.py"
    ]


@pytest.mark.parametrize(
    ("config", "choice", "said"),
    [
        (CONFIG, Choice(include=("test_mn",)), "no module test_mn"),
        (CONFIG, Choice(exclude=("test_mn",)), "no module test_mn"),
        (CONFIG, Choice(include=("../test_nn",)), "not a module below"),
        (CONFIG, Choice(include=("/etc/passwd",)), "not a module below"),
        (Config(groups=(Group(modules=("test_gone",)),)), Choice(), "no module test_gone"),
        (CONFIG, Choice(include=("test_nn",), exclude=("test_nn",)), "is left to run"),
        (
            Config(groups=(Group(modules=("test_nn",), environment={"A": "1"}), Group(modules=("test_*",)))),
            Choice(),
            "test_nn.py is in two groups",
        ),
    ],
)
def test_a_name_without_a_module_is_an_error(tests: Path, config: Config, choice: Choice, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        suite_toml.choose(config, tests, choice)


HEAD, UPSTREAM, OTHER = "1" * 40, "2" * 40, "3" * 40


def test_tests_that_were_edited_are_not_of_the_commit(tmp_path: Path) -> None:
    wheel = WheelVersion(version="2.9.0", commit=HEAD, python="3.12.1", platform="linux")
    edits = ("torch/version.py", "tests.md", "test/test_nn.py")
    assert sources.mismatch(tmp_path, (HEAD,), suite_of(), wheel, edits=edits[:2]) is None
    said = "the tests have local edits: test/test_nn.py"
    assert sources.mismatch(tmp_path, (HEAD,), suite_of(), wheel, edits=edits) == said


@pytest.mark.parametrize(
    ("commits", "built", "version", "said"),
    [
        ((HEAD,), HEAD, "2.9.0", None),
        ((HEAD, UPSTREAM), UPSTREAM, "2.9.0", None),
        (
            (HEAD, UPSTREAM),
            OTHER,
            "2.9.0",
            "the tests are of commit 111111111111, the wheel (2.9.0) of 333333333333",
        ),
        ((), HEAD, "2.9.1+cpu", "the versions are 2.9.0a0 and 2.9.1+cpu, which agree as far as they go"),
        ((), HEAD, "2.10.0", "the versions are 2.9.0a0 and 2.10.0"),
        (
            (HEAD,),
            "",
            "",
            "the wheel does not say which commit it is of; the versions are 2.9.0a0 and unknown",
        ),
    ],
)
def test_tests_must_be_of_the_wheels_commit(
    tmp_path: Path, commits: tuple[str, ...], built: str, version: str, said: str | None
) -> None:
    (tmp_path / "version.txt").write_text("2.9.0a0\n", encoding="utf-8")
    wheel = WheelVersion(version=version, commit=built, python="3.12.1", platform="linux")
    found = sources.mismatch(tmp_path, commits, suite_of(), wheel)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert found.endswith(said)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are of Unicode there")
@pytest.mark.parametrize("name", [b"test_\xff.py", b"test_a\nb.py", b"test_a::b.py", b"test_[a].py"])
def test_a_file_that_no_test_can_be_named_after_is_refused(tmp_path: Path, name: bytes) -> None:
    (tmp_path / os.fsdecode(name)).touch()
    (tmp_path / "test_good.py").touch()
    config = Config(groups=(Group(modules=("test_*",)),))
    with pytest.raises(UsageError, match="no test can be named after"):
        suite_toml.choose(config, tmp_path, Choice())
    assert suite_toml.choose(config, tmp_path, Choice(exclude=("test_[!g]*",))).keys() == {"test_good.py"}
