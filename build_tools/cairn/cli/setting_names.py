"""The names that settings may have, and which of them a project's file may set although nobody trusts it.

A checkout of somebody else's may bring a `cairn.toml`, and who works in it has not read that. So only what
was looked at and cannot lead anywhere else stands in `FREE`: what is built, for what, and how it is shown.
Everything that names a store, an index, a key, a program or a variable, that waives a check, or that has a
command do or show less than was typed (a yank that is a dry run, a log without its last entries), needs a
folder that the user trusts (`cairn config set trusted-folders`). A new option stands in one of the two:
tests/unit/cli/test_settings.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from cairn.errors import UsageError
from cairn.output import safe_text, wording
from cairn.settings import NOT_SETTINGS, PERSONAL, Setting

_FREE = """
amdgpu-family amdgpu-targets apex-dir as-of
build-apex build-number build-pytorch-audio build-pytorch-vision build-triton
cache-read-only causes checkout-dir checkout-root commit-hipify commits
debug depth device-prefix
enable-pytorch-flash-attention enable-pytorch-flash-attention-windows env-dir explain
families for
gpu
hipify html
jobs json
keep-going
layout line linux-amdgpu-families local
matrix max-memory
output output-dir output-path
platform platforms pre project projects pytorch-audio-dir pytorch-build-number
pytorch-dir pytorch-rocm-arch pytorch-vision-dir
quiet
release-type repo-name rocm-extras rocm-sdk-version rocm-version root-checkout-dir
split stack submodules summary
targets test-config test-timeout time-limit timeout times torch-dir trigger
triton-dir
use-ccache use-sccache
variants verbose version-suffix
windows-amdgpu-families work-dir workers
"""
_GUARDED = """
accept-loss add adopt again allow allow-empty allow-local allow-unsigned allow-untested allow-unverified
allow-version-mismatch allowlist apply artifact-dir artifact-group artifacts aws-account
bad base baseline binaries build-arg build-env builder builder-key built-by bundle
bypass cache cache-store cairn check clean cluster collection collection-timeout consumer consumers
commit
days debs delete-after-extract description dest-dir develop develop-env-dir device-floor device-query
download-concurrency draft dry-run
endpoint-url engine exclude executor expected-pytorch-git-ref expression extract
extract-concurrency
figures find-links flatten floor forbid force from
generation gitrepo-origin good gpu-policy
hashes host
image include index index-url install install-rocm installer
jump
keep keep-last
latest leg library library-path like limit lines lock
machine manifest manifest-url max-size mount-dir
new-record night no-extract no-hipify notify num-shards
offline older-than only only-skipped overdue
patience phase pip-cache-dir pip-config port prefix promote promoter provided push python pythons
pytorch-version
reason record refs region release remove repo-hashtag repository require
require-related-commit results resume retries reviewer rocm-index-url root root-key
run-github-repo run-id runs-on
save-bundle sccache-no-wrap scheduler sdk seen set shard sign-as-workflow sign-key
skip-tests smoke-dir sources-dir store stream strict suite
tag test-env test-image tester threshold timestamp to topology-dir translate tries trim trust
trust-tester
undo upgrade
version
wheel who whole
"""
FREE, GUARDED = frozenset(_FREE.split()), frozenset(_GUARDED.split())
_OF_PROJECT = re.compile(r"build-[a-z0-9-]+|[a-z0-9-]+-dir")
_ALIKE = 0.85  # of difflib: `ouput-dir` is a mistyped option, `boxes-dir` the folder of a project


def is_of_project(name: str) -> bool:
    """Whether a name can be an option that `build_prod_wheels.py` has for a project of somebody's stack."""
    import difflib

    names = FREE | GUARDED
    return _OF_PROJECT.fullmatch(name) is not None and not difflib.get_close_matches(
        name, names, cutoff=_ALIKE
    )


def check(setting: Setting, *, options: Collection[str] | None = None) -> None:
    """Refuse a name that no option has.

    Args:
        setting: of a file.
        options: those of the command, if the setting is for that command alone.

    Raises:
        UsageError: there is no such option.
    """
    names = (FREE | GUARDED if options is None else frozenset(options)) - NOT_SETTINGS
    if setting.name not in names and not (options is None and is_of_project(setting.name)):
        where = f" of `cairn {setting.section}`" if setting.section and options is not None else ""
        raise UsageError(
            f"{setting.origin}: there is no option {setting.name!r}{where}",
            tip=wording.did_you_mean(setting.name, sorted(names), what="those that it has")
            if options is not None or wording.nearest(setting.name, names)
            else "`cairn help options` lists them",
        )


def refuse_untrusted(setting: Setting, *, is_trusted: bool) -> None:
    """Refuse what a project's file may not say.

    Raises:
        UsageError: it is a person's, has a password, or needs a folder that is trusted.
    """
    if setting.place != "project":
        return
    text = str(setting.value)
    if setting.name in PERSONAL or safe_text.mask(text) != text:
        subject = "a password is" if setting.name not in PERSONAL else f"{setting.name} is"
        raise UsageError(
            f"{setting.origin}: {subject} a person's, and not for the file of a project",
            tip="`cairn config set` puts it into your own file",
        )
    if not is_trusted and setting.name not in FREE and not is_of_project(setting.name):
        raise UsageError(
            f"{setting.origin} sets {setting.name}, which a project's file may do only in a folder that you "
            "trust",
            tip=f"read it; then `cairn config set trusted-folders {setting.folder}`, or "
            f"give --{setting.name} yourself",
        )
