"""What the jobs of a repository install as Cairn: exactly what runs here, or what is named."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cairn import DISTRIBUTION, files
from cairn.errors import UsageError
from cairn.sources.git import repository as git

FOLDER = ".github/cairn"
"""Where a wheel lies that a repository has itself, beside all that no workflow runs."""

_COMMIT = re.compile(r"git\+https://\S+@[0-9a-f]{40}")
_WHEEL = re.compile(r"https://\S+\.whl#sha256=[0-9a-f]{64}")
_TIP = (
    "name it with --cairn: git+https://host/owner/cairn.git@COMMIT, "
    "https://host/cairn_wheels-….whl#sha256=…, or a wheel, which is then copied into the repository"
)


def named(text: str) -> str:
    """Return the requirement that a user names; for a wheel on this machine, the path of its copy.

    Raises:
        UsageError: it can come to be something else, such as a branch.
    """
    name = text.partition("#")[0].rpartition("/")[2]
    if name.endswith(".whl") and name.partition("-")[0].replace("_", "-") != DISTRIBUTION:
        raise UsageError(f"{name} is no wheel of {DISTRIBUTION}", tip=_TIP)
    if _COMMIT.fullmatch(text) or _WHEEL.fullmatch(text) or text.startswith(f"./{FOLDER}/"):
        return text
    if text.endswith(".whl") and files.expanded(text).is_file():
        return f"./{FOLDER}/{files.expanded(text).name}"
    raise UsageError(f"{text} is no commit, and no wheel with its sha256", tip=_TIP)


def installed() -> str:
    """Return the requirement for what runs here, as pip noted it when it installed it (PEP 610).

    Raises:
        UsageError: it came from where no job can get it: a file, or an index of whatever name.
    """
    note = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    place = json.loads(note) if note else {}
    url = str(place.get("url", ""))
    if commit := place.get("vcs_info", {}).get("commit_id"):
        return named(f"git+{url}@{commit}")
    sha256 = place.get("archive_info", {}).get("hashes", {}).get("sha256")
    if sha256 and url.startswith("https:"):
        return named(f"{url}#sha256={sha256}")
    if "dir_info" in place:
        checkout = git.root_at(Path(url2pathname(urlsplit(url).path)))
        origin, commit = checkout.origin_url(), checkout.head()
        if origin and commit and origin.startswith("https:"):
            return f"git+{origin}@{commit}"
    raise UsageError(
        "jobs cannot install the Cairn that runs here: it has no address that they reach", tip=_TIP
    )
