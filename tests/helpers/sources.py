"""Upstream repositories and checkouts of them, and a home whose git is configured against us."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.checkout.describe import Checkout

_HOSTILE = """\
[user]
	name = Somebody Else
	signingKey = none
[commit]
	gpgSign = true
	template = /nowhere/template
[tag]
	gpgSign = true
	forceSignAnnotated = true
[gpg]
	program = /nowhere/gpg
[core]
	autocrlf = true
	eol = crlf
	safecrlf = true
	hooksPath = {hooks}
	excludesFile = {excludes}
	attributesFile = {attributes}
	editor = false
	pager = false
[init]
	defaultBranch = odd
	templateDir = {template}
[fetch]
	recurseSubmodules = true
	prune = true
[submodule]
	recurse = true
[protocol "file"]
	allow = never
[checkout]
	defaultRemote = elsewhere
[clone]
	defaultRemoteName = elsewhere
[alias]
	fetch = false
	cat-file = false
	rev-list = false
[status]
	showUntrackedFiles = no
	short = true
[diff]
	noprefix = true
	external = /nowhere/diff
[log]
	showSignature = true
	date = relative
	follow = true
	mailmap = true
[mailmap]
	file = {mailmap}
[i18n]
	logOutputEncoding = UTF-16
	commitEncoding = UTF-16
[format]
	pretty = oneline
[color]
	ui = always
[core]
	fsmonitor = /nowhere/monitor
"""

_HOOKS = ("pre-commit", "post-checkout", "reference-transaction", "commit-msg", "post-index-change")


def make_hostile(home: Path) -> None:
    """Configure git to change most of what we do; a hook that ran leaves a file `ran` in the home."""
    hooks = home / "hooks"
    for folder in (hooks, home / "template" / "hooks"):
        folder.mkdir(parents=True)
        for name in _HOOKS:
            (folder / name).write_text(f'#!/bin/sh\necho ran >> "{home}/ran"\nexit 1\n')
            (folder / name).chmod(0o755)
    (home / "excludes").write_text("*.hip\n*.cpp\n")
    (home / "attributes").write_text("* text eol=crlf\n")
    (home / "mailmap").write_text("Renamed <renamed@example.invalid> <up@example.invalid>\n")
    names = ("hooks", "template", "excludes", "attributes", "mailmap")
    (home / ".gitconfig").write_text(_HOSTILE.format(**{name: home / name for name in names}))


def clean_environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return kept | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}


def git(folder: Path, *args: str) -> str:
    """Plain git, as a user without configuration would run it."""
    identity = ("-c", "user.name=Up Stream", "-c", "user.email=up@example.invalid")
    done = subprocess.run(
        ["git", *identity, "-c", "protocol.file.allow=always", *args],
        cwd=folder,
        env=clean_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"git {args}: {done.stderr}"
    return done.stdout.strip()


@dataclass(frozen=True)
class Upstream:
    """A folder of bare upstream repositories, and work trees to commit to them from."""

    folder: Path

    def origin(self, name: str) -> str:
        return str(self.folder / f"{name}.git")

    def work(self, name: str) -> Path:
        return self.folder / "work" / name

    def create(self, name: str, files: Mapping[str, str]) -> str:
        work = self.work(name)
        work.mkdir(parents=True)
        git(work, "init", "--quiet", "--initial-branch=main")
        git(self.folder, "init", "--quiet", "--bare", "--initial-branch=main", f"{name}.git")
        git(work, "remote", "add", "origin", self.origin(name))
        return self.commit(name, files, f"Begin {name}")

    def commit(self, name: str, files: Mapping[str, str], message: str, *, branch: str = "main") -> str:
        work = self.work(name)
        for path, text in files.items():
            target = work / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        git(work, "add", "--all", "--force")
        git(work, "commit", "--quiet", "--allow-empty", "-m", message)
        git(work, "push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{branch}")
        return git(work, "rev-parse", "HEAD")

    def add_submodule(self, name: str, module: str, path: str) -> None:
        git(self.work(name), "submodule", "--quiet", "add", f"../{module}.git", path)

    def bump_submodule(self, name: str, path: str, commit: str) -> None:
        git(self.work(name) / path, "fetch", "--quiet", "origin")
        git(self.work(name) / path, "checkout", "--quiet", commit)


@dataclass(frozen=True)
class Bench:
    """Checks torch out with few words."""

    request: CheckoutRequest

    def __call__(self, hashtag: str = "main", **changes: object) -> Checkout:
        return checkout(replace(self.request, hashtag=hashtag, **changes))  # type: ignore[arg-type]

    @property
    def path(self) -> Path:
        return self.request.checkout_dir

    def git(self, *args: str) -> str:
        return git(self.path, *args)

    def commit(self, name: str, text: str | bytes, message: str, *, part: str = "") -> str:
        """Commit a file, as a developer; the commit's id."""
        path = self.path / part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        at = ("-C", part) if part else ()
        author = ("-c", "user.name=Dévelopeuse", "-c", "user.email=dev@example.invalid")
        self.git(*at, "add", "--force", name)
        self.git(*at, *author, "commit", "--quiet", "--allow-empty", "-m", message)
        return self.git(*at, "rev-parse", "HEAD")
