"""A suite on a set that is installed from its index: the record is bound to the bytes that were installed."""

from pathlib import Path

from cairn.testing import install_set, record
from cairn.testing.suite import merge, run
from cairn.venv import PackageSource
from helpers.suites import commit_all, request_of, suite_of, write_tests
from helpers.testing import MakeWheel, Serve, set_of

TESTS = {
    # A folder of the sources' own, which must not be what the tests import.
    "../vectors/__init__.py": "raise ImportError('the source tree')\n",
    "test_it.py": """
import pathlib, sys, pytest, vectors

def test_it_is_the_wheel_that_is_tested():
    assert "site-packages" in vectors.__file__
    assert vectors.add(1, 2) == 3

def test_what_tests_need_comes_last_on_the_path():
    assert str(pathlib.Path(pytest.__file__).parents[1]) == sys.path[-1]
""",
}


def test_the_record_names_every_file_that_was_installed(
    tmp_path: Path, make_wheel: MakeWheel, serve: Serve
) -> None:
    commit = commit_all(write_tests(tmp_path / "checkout", TESTS))
    version = f"__version__ = '1.0'\ngit_version = '{commit}'\n"
    members = {"vectors/__init__.py": "def add(a, b):\n    return a + b\n", "vectors/version.py": version}
    wheels = [
        make_wheel("vectors", "1.0", members, requires=["scalars"]),
        make_wheel("scalars", "2.0", {"scalars.py": ""}),
    ]
    wheel_set = set_of(wheels[:1])
    tested = install_set.install_for_suite(
        install_set.SuiteSetRequest(
            wheel_set=wheel_set, work_dir=tmp_path / "results", source=PackageSource(index_url=serve(wheels))
        )
    )
    suite = suite_of("test_it", project="vectors", version_module="vectors/version.py")
    request = request_of(tmp_path, TESTS, suite=suite, tested=tested, commits=(commit,), allow_mismatch=False)
    merged = merge.merge([run.run_suite(request)], request.work_dir)
    assert merged.judgement.verdict == "passed", merged.judgement.reason
    made = record.read(request.work_dir / record.FILE)
    assert {wheel.file_name: wheel.sha256 for wheel in made.wheels}.keys() == {path.name for path in wheels}
    assert made.sha256s >= {wheel.sha256 for wheel in wheel_set.wheels}
    assert (made.kind, made.config, made.counts.passed, made.pytest_args) == ("suite", "default", 2, ())
