"""Run `git`, isolated from the user's configuration, and turn its failures into errors.

Every GIT_* variable of the caller and every configuration file of the user and the machine is ignored:
signing, hooks, templates, autocrlf, filters, default branch and aliases do not exist for our runs. The trees,
commits and tags that a run makes therefore depend on its arguments alone.

One exception, for the runs that talk to an origin (`online`): how a private origin is reached is up to the
user. `credential.*`, `http.*`, `url.*.insteadOf`, `core.sshCommand`, `core.askPass` and `ssh.variant`
are read from the configuration that git would have used, and passed on with the variables in
`_CONNECTION_VARIABLES`. They say how bytes travel, never what is done with them. They may hold secrets, so
they travel in the environment, neither in arguments (which `ps` shows) nor in a file. Every other run sees
the variables of a `TOOL` alone (`cairn.isolation`).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from cairn import files, isolation, platforms, process
from cairn.errors import CairnError, NetworkError, SourceError, SystemFailureError
from cairn.output import safe_text

EMAIL = "cairn@cairn.invalid"

# Settings of every run (git-config(1) describes each). Many are git's defaults, stated all the same: the
# configuration of the repository itself, which may be a user's clone, is still read, and these win over it.
_FIXED: Mapping[str, str] = {
    "user.name": "Cairn",
    "user.email": EMAIL,
    "user.useConfigOnly": "true",
    "advice.detachedHead": "false",
    "checkout.workers": "0",  # one per core (git 2.32); measured 3.9 s -> 2.9 s on torch's 86,000 files
    "color.ui": "false",
    "commit.gpgSign": "false",
    "core.askPass": "",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",  # names as they are, not "\\303\\274"
    "core.safecrlf": "false",
    "core.sparseCheckout": "false",
    # The text of a diff: the digests of patches and the files of an export depend on it.
    "diff.context": "3",
    "diff.interHunkContext": "0",
    "diff.noprefix": "false",
    "diff.orderFile": os.devnull,
    "diff.suppressBlankEmpty": "false",
    "core.useReplaceRefs": "false",
    "fetch.recurseSubmodules": "false",
    "fetch.writeCommitGraph": "false",
    # A background gc would keep locks after our run has ended, and may drop what an unfinished fetch brought.
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",  # of a commit that we make: another one would change its id
    "i18n.logOutputEncoding": "UTF-8",
    "init.defaultBranch": "main",
    "init.templateDir": "",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "merge.verifySignatures": "false",
    # Since 2.38.1 git refuses submodules whose origin is a path (CVE-2022-39253); a stack may have such.
    "protocol.file.allow": "always",
    "protocol.version": "2",
    "push.gpgSign": "false",
    # Git would refuse repositories of a different owner (2.35.2, CVE-2022-24765), as containers mount.
    "safe.bareRepository": "all",
    "safe.directory": "*",
    "submodule.recurse": "false",
    "tag.forceSignAnnotated": "false",
    "tag.gpgSign": "false",
    # Of an origin that is a path, our own git is the server: it is to serve commits by id, and with a filter.
    "uploadpack.allowAnySHA1InWant": "true",
    "uploadpack.allowFilter": "true",
}

_CONNECTION_VARIABLES = re.compile(
    r"GIT_(SSH|SSH_COMMAND|SSH_VARIANT|ASKPASS|SSL_\w+|PROXY_SSL_\w+|HTTP_PROXY_\w+|HTTP_LOW_SPEED_\w+)"
)
_CONNECTION_SETTINGS = re.compile(
    r"(credential|http)\..+|url\..+\.insteadof|core\.(sshcommand|askpass|gitproxy)|ssh\.variant", re.DOTALL
)

_MESSAGE_LIMIT = 400  # characters of git's own words in an error
_LINE_LIMIT = 2_000

# The lines of a repository's configuration that name no program, as git itself writes them.
_PLAIN = re.compile(
    r"""\s*(\[(core|extensions|user|((remote|branch|submodule)[ ]"[^"\\]*"))\]
    |(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|worktree
    |fetch|tagopt|promisor|partialclone(filter)?|worktreeconfig|objectformat|active|merge|remote|name|email
    )\s*=[^\\]*|url\s*=(?!.*::)[^\\]*)?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
COMMIT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # in full: SHA-1 or SHA-256

Setting = tuple[str, str]


def run(
    folder: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    online: bool = False,
) -> str:
    """Run git in `folder` and return its standard output.

    Args:
        folder: the working folder.
        args: what follows `git`.
        env: variables on top of ours.
        config: settings on top of ours; they are passed out of sight, so an origin with a token may be one.
        stdin: what git reads.
        online: git may use the user's settings to reach an origin.

    Raises:
        NetworkError: an origin could not be reached.
        SourceError: git refused, with its reason.
        SystemFailureError: no space left or no permission.
        PrerequisiteError: git is not installed.
    """
    result = _spawn(folder, args, env=env, config=config, stdin=stdin, online=online)
    if result.returncode:
        raise error_of(args, result.stderr or result.output, returncode=result.returncode)
    return result.output


def succeeds(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> bool:
    """Whether a git command exits with 0 in `folder`; for queries such as `merge-base --is-ancestor`."""
    return _spawn(folder, args, env=env, config=None, stdin=None, online=False).returncode == 0


def line(folder: Path, *args: str) -> str:
    """Run git in `folder` and return the one line that it writes."""
    return run(folder, *args).strip()


def nul_separated(names: Iterable[str]) -> bytes:
    """Encode file names for git's `-z`: NUL is the one separator that no name can contain."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def environment(
    *, env: Mapping[str, str] | None = None, config: Mapping[str, str] | None = None, online: bool = False
) -> dict[str, str]:
    """Return the complete environment for a git command; see the module's docstring."""
    # A foreign build may have named programs in the .git/config of its tree, such as filters. git runs them,
    # confined (`_spawn`). Only a mirror, which is not there for builds to write to, reaches an origin; no key
    # is for git.
    base = isolation.variables(isolation.Isolation.TOOL) if not online else os.environ
    inherited = {
        name: value
        for name, value in base.items()
        if not name.startswith(("GIT_", "LC_", "LANG", "CAIRN_SIGN_"))
        or (online and _CONNECTION_VARIABLES.fullmatch(name))
    }
    fixed: dict[str, str] = {**_FIXED, **(config or {})}
    settings: list[Setting] = [*fixed.items(), *(connection_settings() if online else ())]
    return {
        **inherited,
        **_as_variables(settings),
        "GIT_ATTR_NOSYSTEM": "1",
        # Git clears GIT_CONFIG_COUNT for the upload-pack that serves a path origin (local_repo_env in its
        # environment.c); the global file (git 2.32) reaches that program too.
        "GIT_CONFIG_GLOBAL": str(_fixed_file()),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",  # `git status` must not rewrite the index under a user's editor (git 2.15)
        "GIT_TERMINAL_PROMPT": "0",  # fail instead of waiting for a password that no one types
        "LC_ALL": "C",
        **(env or {}),
    }


@functools.lru_cache(maxsize=1)
def connection_settings() -> tuple[Setting, ...]:
    """Read how the user reaches private origins from git's own configuration, in its order."""
    # With a GIT_DIR that is not a repository: that of the current folder, if any, has no say.
    env = {**os.environ, "GIT_DIR": os.devnull}
    result = process.run(
        ["git", "config", "--list", "-z", "--includes"],
        env=env,
        check=False,
        separate_stderr=True,
        confined=False,
    )
    if result.returncode:
        return ()
    pairs = (entry.partition("\n") for entry in result.output.split("\0") if entry)
    # A key without a value (`[http] foo`) means true.
    settings = ((key, value if sep else "true") for key, sep, value in pairs)
    return tuple((key, value) for key, value in settings if _CONNECTION_SETTINGS.fullmatch(key))


def _spawn(
    folder: Path,
    args: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    config: Mapping[str, str] | None,
    stdin: bytes | None,
    online: bool,
) -> process.Completed:
    variables = environment(env=env, config=config, online=online)
    reach, network = (None, True) if online else reach_of(folder, args, variables, env or {})
    return process.run(
        ["git", *args],
        cwd=folder,
        env=variables,
        stdin=stdin,
        check=False,
        separate_stderr=True,
        confined=not online,
        reach=reach,
        network=network,
    )


def reach_of(
    folder: Path, args: Sequence[str], variables: Mapping[str, str], places: Mapping[str, str]
) -> tuple[platforms.Reach, bool]:
    """Return the files of a git in a tree, and whether it has a network.

    The files are the tree, its repository, and what arguments and `places` name. A partial clone of the
    user's may fetch what it lacks by ssh, so it has their logins and the network; but not where its
    configuration may name programs, since these would have them too.
    """
    parts, top = isolation.repository_of(folder), folder
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            top = above
            break
    # Several object folders stand in one variable, and may be quoted (git(1)).
    words = (part.strip('"') for value in places.values() for part in (value, *value.split(os.pathsep)))
    values = (word.partition("=")[2] if word.startswith("-") else word for word in args)
    named_paths = [Path(word) for word in (*values, *words) if Path(word).is_absolute()]
    parts = (*parts, *(part for path in named_paths for part in isolation.borrowed_by(path)))
    writes = [
        top,
        *parts,
        files.cache_dir() / "git",
        *(path if path.is_dir() else path.parent for path in named_paths),
    ]
    reads, written, hidden = isolation.reach(("git",), cwd=folder, env=variables, writes=writes)
    text = "".join(
        (part / "config").read_text(encoding="utf-8", errors="replace")
        for part in parts
        if (part / "config").is_file()
    )
    fetches = "promisor" in text and all(map(_PLAIN.fullmatch, text.splitlines()))
    if fetches:
        reads = (*reads, *isolation.logins(), *isolation.places_in(text))
        hidden = isolation.key_files()
    return (reads, written, hidden), fetches


def _as_variables(settings: Iterable[Setting]) -> dict[str, str]:
    """Return settings as the variables that git reads them from (git 2.31; git-config(1), ENVIRONMENT)."""
    pairs = list(settings)
    variables = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def _fixed_file() -> Path:
    """Return the file of our fixed settings; it is named after its content, so it never changes."""
    name, text = _fixed_text()
    path = files.cache_dir() / "git" / name
    if not path.exists():
        files.write_text(path, text)
    return path


@functools.cache
def _fixed_text() -> tuple[str, str]:
    text = config_text(_FIXED.items())
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.config", text


def config_text(settings: Iterable[Setting]) -> str:
    """Format settings as a git configuration file (git-config(1), syntax)."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        head = f'[{section} "{_escaped(subsection)}"]' if subsection else f"[{section}]"
        lines.append(f'{head}\n\t{name} = "{_escaped(value)}"\n')
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class UnknownRefError(SourceError):
    """The origin has no such branch, tag or commit."""


class UnreachableError(SourceError):
    """There is no repository at the origin, or we may not read it; trying again would not help."""


# Git has no error codes, so its words (in LC_ALL=C) must do. The first that matches wins: a full disk and a
# missing repository end in the same "early EOF" and "could not read from remote" as a lost connection.
_KINDS: tuple[tuple[type[CairnError], tuple[str, ...], str | None], ...] = (
    (
        SystemFailureError,
        ("no space left on device", "disk quota exceeded"),
        "free some space and run the same command again",
    ),
    (
        UnknownRefError,
        ("couldn't find remote ref", "not our ref", "unadvertised object", "no such remote ref"),
        None,
    ),
    (
        UnreachableError,
        (
            "does not appear to be a git repository",
            "repository .*(not found|does not exist)",
            "authentication failed",
            "could not read (username|password)",
            "invalid credentials",
            r"permission denied \(publickey",
            "host key verification failed",
            r"returned error: 4(?!08|29)\d\d",
            "unsupported protocol",
            "url (using bad|rejected)",  # of curl, before and since 8.7
            "unable to find remote helper",
            "transport '.*' not allowed",
        ),
        "check the origin and your access to it: `git ls-remote ORIGIN` must work for you",
    ),
    (
        SourceError,
        ("possible repository corruption",),
        "the origin is damaged (`git fsck` there says where); --depth 1 may do without that part",
    ),
    (
        NetworkError,
        (
            "could not resolve",
            "couldn't connect",
            "failed to connect",
            "connection (timed out|refused|reset|closed)",
            "operation timed out",
            "network is unreachable",
            "no route to host",
            "early eof",
            "rpc failed",
            "the remote end hung up",
            "unexpected disconnect",
            r"returned error: (408|429|5\d\d)",
            r"ssl_|gnutls|\btls\b",
            "recv failure",
            "empty reply",
            "could not read from remote",
            "transfer closed",
            "unable to access",
            "kex_exchange_identification",
            "expected flush",
            "invalid index-pack output",
        ),
        "check the network and the origin, then run the same command again",
    ),
    (
        SystemFailureError,
        ("permission denied", "read-only file system", "operation not permitted"),
        "see who owns the folder, and whether it may be written",
    ),
    (
        SystemFailureError,
        # Several workers say no more than that (git's parallel-checkout.c).
        ("unable to (write|create) file",),
        "see whether the disk is full and the folder may be written, and run the same command again",
    ),
)


def error_of(args: Sequence[str], stderr: str, *, returncode: int) -> CairnError:
    """Return the error for a git command that failed.

    Args:
        args: what followed `git`.
        stderr: what it wrote.
        returncode: its exit status.
    """
    reason = _reason(stderr) or f"exit code {returncode}"
    message = f"git {_verb(args)}: {reason}"
    # A server may have written some of it, in lines of any length.
    output = "\n".join(line[:_LINE_LIMIT] for line in stderr.splitlines())
    for kind, patterns, tip in _KINDS:
        if re.search("|".join(patterns), output, re.IGNORECASE):
            return kind(message, tip=tip)
    return SourceError(message)


def _verb(args: Sequence[str]) -> str:
    return PurePath(next((a for a in args if not a.startswith("-")), "")).name


def _reason(stderr: str) -> str:
    """Return git's own message on one line, without hints and progress."""
    # A server's message may end in a zero byte, and progress is separated by carriage returns.
    text = safe_text.mask(stderr).replace("\r", "\n").replace("\0", "")
    lines = [line.strip() for line in text.splitlines()]
    reasons = [line for line in lines if re.match(r"(fatal|error|remote|ssh|warning: unable)", line)]
    messages = [re.sub(r"^(fatal|error): ", "", line) for line in reasons or lines if line]
    return "; ".join(dict.fromkeys(messages))[:_MESSAGE_LIMIT]
