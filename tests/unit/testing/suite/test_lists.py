"""The lists of tests that a night fetches and its tests read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cairn.errors import CairnError, UsageError
from cairn.retry import RetryPolicy
from cairn.testing.suite import suite_toml
from cairn.testing.suite.suite_toml import TestList
from helpers.serving import serving
from helpers.suites import suite_of

CONDENSED = b'{"test_a (__main__.TestA)": ["1", "https://a.org/1", ["rocm"]], "test_b (B)": [2, "u", []]}'
TIMES = b'{"test_c (__main__.TestC)": 61.5}'


def test_a_list_is_fetched_as_it_is_and_written_as_its_tests_read_it(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web/disabled.json").write_bytes(CONDENSED)
    (tmp_path / "slow.json").write_bytes(TIMES)
    with serving(tmp_path / "web") as url:
        disabled = TestList(format="condensed", url=f"{url}/disabled.json")
        suite = suite_of(lists={"DISABLED": disabled, "SLOW": TestList(format="times", path="slow.json")})
        fetched = suite_toml.fetch(suite)
    assert fetched == {disabled.url: CONDENSED}
    paths, digests = suite_toml.placed(suite, fetched, tmp_path, tmp_path, {})
    assert paths == {name: str(tmp_path / f"{name}.json") for name in digests}
    assert digests == {
        name: hashlib.sha256(data).hexdigest() for name, data in (("DISABLED", CONDENSED), ("SLOW", TIMES))
    }
    assert json.loads((tmp_path / "DISABLED.json").read_text()) == {
        "test_a (__main__.TestA)": ["https://a.org/1", ["rocm"]],
        "test_b (B)": ["u", []],
    }
    assert json.loads((tmp_path / "SLOW.json").read_text()) == json.loads(TIMES)
    # Outside of a night nothing is fetched, and what the user has set stays.
    said: list[str] = []
    assert suite_toml.placed(suite, None, tmp_path, tmp_path, {}, say=said.append)[0].keys() == {"SLOW"}
    assert said == ["no DISABLED: nights fetch that list; --test-env DISABLED=FILE names one"]
    assert suite_toml.placed(suite, fetched, tmp_path, tmp_path, {"SLOW": ""})[0].keys() == {"DISABLED"}
    with pytest.raises(UsageError, match="the night has frozen no list DISABLED"):
        suite_toml.placed(suite, {}, tmp_path, tmp_path, {})
    (tmp_path / "slow.json").unlink()
    with pytest.raises(UsageError, match=r"slow\.json"):
        suite_toml.placed(suite, fetched, tmp_path, tmp_path, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no list DISABLED at http://127.0.0.1"),
        (b"<html>please log in</html>", "is not of the format condensed: JSON is malformed"),
        (b"", "is not of the format condensed"),
        (CONDENSED[:40], "is not of the format condensed"),
        (TIMES, "is not of the format condensed: Expected `array`"),
        (b'["test_a"]', "is not of the format condensed: Expected `object`"),
        (b"[" * 100_000, "is not of the format condensed"),
        (b" " * (1 << 24) + b"{}", "is larger than 16 MiB"),
    ],
    ids=("missing", "html", "empty", "cut", "times", "array", "deep", "large"),
)
def test_what_is_no_such_list_is_named(
    tmp_path: Path, content: bytes | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_toml, "RetryPolicy", lambda: RetryPolicy(attempts=1))
    if content is not None:
        (tmp_path / "disabled.json").write_bytes(content)
    with serving(tmp_path) as url, pytest.raises(CairnError, match=said) as refused:
        suite_toml.fetch(
            suite_of(lists={"DISABLED": TestList(format="condensed", url=f"{url}/disabled.json")})
        )
    assert "suite.toml" in str(refused.value.tip)


def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(suite_toml, "RetryPolicy", lambda: RetryPolicy(attempts=2, wait=0.0))
    suite = suite_of(lists={"DISABLED": TestList(format="condensed", url="http://127.0.0.1:9/a?key=secret")})
    with pytest.raises(CairnError, match=r"cannot read http://127\.0\.0\.1:9/a: "):
        suite_toml.fetch(suite, say=said.append)
    assert "trying again" in said[1]
    assert "secret" not in "".join(said)
