"""Upstream repositories and checkouts of them, runs that are killed, and a home whose git is against us."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from cairn import isolation
from cairn.files import cache_dir
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.sources.checkout.describe import Checkout

T = TypeVar("T")
EVERY_MOMENT = bool(os.environ.get("CAIRN_TEST_ALL"))  # else a sample of those at which a run may die

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
    # Without a template a repository has no hooks of samples, which are a third of its files.
    plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TEMPLATE_DIR": ""}
    return kept | plain | {"LC_ALL": "C.UTF-8"}


def git(folder: Path, *args: str, **variables: str) -> str:
    """Plain git, as a user without configuration would run it, with these variables besides."""
    identity = ("-c", "user.name=Up Stream", "-c", "user.email=up@example.invalid")
    done = subprocess.run(
        ["git", *identity, "-c", "protocol.file.allow=always", *args],
        cwd=folder,
        env=clean_environment() | variables,
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

    def go_on(self, files: Mapping[str, str] | None = None) -> str:
        """Commit something to move to, in torch and in its submodule cudakit; the commit of cudakit."""
        kit = self.commit("cudakit", {"fill.cu": '#include "driver_types.h"\nint newer;\n'}, "Newer kit")
        self.bump_submodule("torch", "third_party/cudakit", kit)
        self.commit("torch", {"version.txt": "2.9.1\n"} | dict(files or {}), "Next")
        return kit


@dataclass(frozen=True)
class Saved:
    """What tests begin with, each made once in a session and copied for every other test that begins with it.

    Checkouts and mirrors name each other by absolute paths, so that all tests work in one place, in turn.
    """

    place: Path
    folder: Path
    values: dict[str, Any] = field(default_factory=dict)

    def bring(self, name: str, make: Callable[[], T]) -> T:
        """Have in the place what `make` makes there of what every test has; what it returned."""
        copy = self.folder / name
        if name in self.values:
            shutil.rmtree(self.place)
            shutil.copytree(copy, self.place, symlinks=True)
        else:
            self.values[name] = make()
            shutil.copytree(self.place, copy, symlinks=True)
        return cast("T", self.values[name])

    def checkout(self, name: str, request: CheckoutRequest) -> Checkout:
        """A first checkout; nothing else in the place is changed."""
        places = {"checkout": request.checkout_dir, "cache": cache_dir()}
        assert not any(place.exists() for place in places.values())
        is_made = name in self.values
        if not is_made:
            self.values[name] = checkout(request)
        for part, place in places.items():
            copy = self.folder / name / part
            source, target = (copy, place) if is_made else (place, copy)
            shutil.copytree(source, target, symlinks=True)
        return cast("Checkout", self.values[name])


@dataclass(frozen=True)
class Bench:
    """Checks torch out with few words."""

    request: CheckoutRequest
    saved: Saved

    def __call__(self, hashtag: str = "main", **changes: object) -> Checkout:
        return checkout(dataclasses.replace(self.request, hashtag=hashtag, **changes))  # type: ignore[arg-type]

    def begin(self, **changes: object) -> Checkout:
        """Check out `main` for the first time, before upstream goes on."""
        name = "checkout" + "".join(f" {key}={value}" for key, value in changes.items())
        done = self.saved.checkout(name, dataclasses.replace(self.request, **changes))  # type: ignore[arg-type]
        newest = Path(self.request.origin, "refs/heads/main").read_text().strip()
        assert done.commit == newest, "upstream has gone on"
        return done

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


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file and link of the working trees below a folder, without what is git's."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for path in (Path(place, name) for name in (*names, *folders)):
            if path.is_symlink():
                found[path.relative_to(folder).as_posix()] = b"link " + os.fsencode(path.readlink())
            elif path.is_file() and path.name != ".git":
                found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def dropped_ref(said: str) -> str:
    """The ref under which `--force` says that it keeps what it drops."""
    return next(word for word in said.split() if word.startswith("refs/cairn/dropped/"))


def dropped(*git_dirs: Path) -> str:
    """All that `--force` gave a ref in these repositories, as text."""
    found = []
    for folder in git_dirs:
        plain = (f"--git-dir={folder}", f"--work-tree={folder}")
        refs = git(folder, *plain, "for-each-ref", "--format=%(refname)", "refs/cairn/dropped").split()
        names = git(folder, *plain, "rev-list", "--objects", "--no-object-names", *refs) if refs else ""
        found += [git(folder, *plain, "cat-file", "-p", name) for name in names.split()]
    return "\n".join(found)


# Runs a checkout, or the `hipify` command, in a process of its own.
CHECKOUT = """
import sys
from pathlib import Path
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.stack import Origin, Project
names = {"name": "torch", "distribution": "torch", "checkout_dir": "x", "hashtag": "x"}
project = Project(**names, origin=Origin(url="x"), hipify="build_amd")
origin, folder, python, jobs = sys.argv[1:5]
checkout(CheckoutRequest(project=project, checkout_dir=Path(folder), origin=origin, hashtag="main",
                         python=Path(python), jobs=int(jobs) or None))
"""
HIPIFY = CHECKOUT[: CHECKOUT.index("checkout(Check")].replace("CheckoutRequest, checkout", "hipify_checkout")
HIPIFY += "hipify_checkout(project, Path(folder))\n"
# Stands in front of git, and kills the process that calls it at the N-th call, of any command or of one.
_KILLER = """#!/bin/sh
case " $* " in
    {calls}) ;;
    *) exec "{git}" "$@" ;;
esac
# Each call gets a number of its own, also of those that run side by side: only one can make the file.
set -C
count=1
until true 2>/dev/null > "{folder}/call $count"; do count=$((count + 1)); done
[ $count -eq {nth} ] || exec "{git}" "$@"
[ {when} = after ] && "{git}" "$@"
# A confined program signals none outside: whoever started Cairn kills it.
: > "{folder}/now"
while [ -d /proc/$PPID ]; do sleep 0.01; done
[ {when} = orphan ] || exit 1
exec "{git}" "$@"
"""


When = Literal["before", "after", "orphan"]


def killed(
    bench: Bench,
    folder: Path,
    *,
    nth: int = 1,
    verb: str = "",
    when: When = "before",
    program: str = CHECKOUT,
    python: Path | str = sys.executable,
    jobs: int = 1,
) -> int:
    """The exit status of a run that is killed at a call of git; 0 when it ended before.

    Args:
        bench: what the run works on, by its own request's origin and folder.
        folder: for the program that kills it; there is no such folder yet.
        nth: the call.
        verb: the command of git whose calls count; empty: all do.
        when: before git has run, after, or leaving git to run on without a parent.
        program: what runs; it gets the origin, the checkout's folder, the interpreter and the number of jobs.
        python: the interpreter for hipify.
        jobs: how many submodules are fetched side by side; 0: as many as by default.
    """
    folder.mkdir()
    calls = f'*" {verb} "*' if verb else "*"
    shim = _KILLER.format(folder=folder, calls=calls, nth=nth, when=when, git=shutil.which("git"))
    (folder / "git").write_text(shim)
    (folder / "git").chmod(0o755)
    env = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    env[isolation.VARIABLE] = str(folder)  # where this git counts its calls
    words: list[Any] = [bench.request.origin, bench.path, python, jobs]
    command = [sys.executable, "-c", program, *map(str, words)]
    return killed_at(folder / "now", command, env)


def killed_at(marker: Path, command: Sequence[str], env: Mapping[str, str]) -> int:
    """The exit status of a program that is killed once a file is there; its own when it ended before."""
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        while program.poll() is None:
            if marker.exists():
                program.kill()
            time.sleep(0.005)
        return program.returncode
