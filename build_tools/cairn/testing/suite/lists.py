"""Lists of tests that the tests themselves read, such as those that an open issue of PyTorch's disables.

suite.toml names each by the variable in which the tests look for its path. One with an address is fetched
when a night is frozen, so that all shards of the night skip the same tests. One of the sources is of their
commit.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cairn import datafile, files, web
from cairn.errors import NetworkError, UsageError
from cairn.output import Progress, silent
from cairn.retry import RetryPolicy, retrying
from cairn.testing.suite.suite_toml import ListFormat, Suite

_MOST = 1 << 24  # bytes; PyTorch's has some 200,000
_SECONDS = 60.0
_TIP = "name a copy of it in suite.toml (`url`, which may be a file:// one), or take the list out there"
_FORMS: Mapping[ListFormat, Any] = {
    "condensed": dict[str, tuple[str | int, str, tuple[str, ...]]],
    "times": dict[str, float],
}


def fetch(suite: Suite, *, say: Progress = silent) -> dict[str, bytes]:
    """Fetch the lists of a suite that have an address; return the bytes by address.

    Raises:
        NetworkError: there is no list at an address, no answer, or too long a one.
        UsageError: it is not of its format.
    """
    fetched: dict[str, bytes] = {}
    for variable, test_list in suite.lists.items():
        if url := test_list.url:
            say(f"fetching {web.shown(url)}")
            read = functools.partial(web.whole, url, most=_MOST, timeout=_SECONDS, tip=_TIP)
            data = retrying(read, retry=RetryPolicy(), say=say)
            if data is None:
                raise NetworkError(f"there is no list {variable} at {web.shown(url)}", tip=_TIP)
            _as_read(data, test_list.format, name=f"the list {variable}, {web.shown(url)},")
            fetched[url] = data
    return fetched


def place(
    suite: Suite,
    fetched: Mapping[str, bytes] | None,
    tests: Path,
    folder: Path,
    without: Mapping[str, str],
    say: Progress = silent,
) -> tuple[dict[str, str], dict[str, str]]:
    """Write lists into a folder; by variable, return their paths and the sha256 of what each was made from.

    Args:
        suite: which lists there are.
        fetched: those with an address; None outside of a night, where these are left out.
        tests: the folder of tests.
        folder: receives the files.
        without: variables that are set already, whose lists are left out.
        say: called with what is left out.

    Raises:
        UsageError: a list is missing, or is not of its format.
    """
    paths: dict[str, str] = {}
    digests: dict[str, str] = {}
    for variable, test_list in suite.lists.items():
        if variable in without:
            continue
        if test_list.url and fetched is None:
            say(f"no {variable}: nights fetch that list; --test-env {variable}=FILE names one")
            continue
        place = test_list.url or str(tests / test_list.path)
        if fetched is None or not test_list.url:
            data = datafile.bytes_of(Path(place), tip=f"correct lists.{variable} of suite.toml")
        elif place in fetched:
            data = fetched[place]
        else:
            raise UsageError(f"the night has frozen no list {variable}", tip="begin another night")
        read = _as_read(data, test_list.format, name=f"the list {variable}, {web.shown(place)},")
        paths[variable] = str(folder / f"{variable}.json")
        files.write_text(Path(paths[variable]), json.dumps(read))
        digests[variable] = hashlib.sha256(data).hexdigest()
    return paths, digests


def _as_read(data: bytes, form: ListFormat, *, name: str) -> dict[str, Any]:
    """Return a list as the tests read it."""
    try:
        tests: dict[str, Any] = datafile.decode(data, _FORMS[form])
    except msgspec.DecodeError as error:
        raise UsageError(f"{name} is not of the format {form}: {error}", tip=_TIP) from error
    return {test: why[1:] for test, why in tests.items()} if form == "condensed" else tests
