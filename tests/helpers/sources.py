"""What the tests of sources share."""

from __future__ import annotations

from pathlib import Path

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
