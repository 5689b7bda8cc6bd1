"""The `git` program, run so that a person's configuration changes nothing of what it does.

Every GIT_* variable of the caller and every configuration file of the person and the machine is left out:
signing, hooks, templates, autocrlf, filters, default branch and aliases do not exist for our runs. What a
tree, a commit or a tag comes out as thus depends on the arguments alone.

One exception, for the runs that talk to an origin (`online`): how a private origin is reached stays the
person's. `credential.*`, `http.*`, `url.*.insteadOf`, `core.sshCommand`, `core.askPass` and `ssh.variant`
are read from the configuration that git would have used, and passed on with the variables in
`_CONNECTION_VARIABLES`. They say how bytes travel, never what is done with them. They may hold secrets, so
they travel in the environment, neither in arguments (which `ps` shows) nor in a file.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cairn import files, process
from cairn.sources.git import failures

EMAIL = "cairn@cairn.invalid"

_FIXED: Mapping[str, str] = {
    "user.name": "Cairn",
    "user.email": EMAIL,
    "user.useConfigOnly": "true",
    "advice.detachedHead": "false",
    "checkout.workers": "0",
    "color.ui": "false",
    "commit.gpgSign": "false",
    "core.askPass": "",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "core.safecrlf": "false",
    "core.sparseCheckout": "false",
    "core.useReplaceRefs": "false",
    "fetch.recurseSubmodules": "false",
    "fetch.writeCommitGraph": "false",
    "gc.auto": "0",
    "init.defaultBranch": "main",
    "init.templateDir": "",
    "maintenance.auto": "false",
    "protocol.file.allow": "always",
    "protocol.version": "2",
    "push.gpgSign": "false",
    "safe.bareRepository": "all",
    "safe.directory": "*",
    "submodule.recurse": "false",
    "tag.forceSignAnnotated": "false",
    "tag.gpgSign": "false",
    "uploadpack.allowAnySHA1InWant": "true",
    "uploadpack.allowFilter": "true",
}

_CONNECTION_VARIABLES = re.compile(
    r"GIT_(SSH|SSH_COMMAND|SSH_VARIANT|ASKPASS|SSL_\w+|PROXY_SSL_\w+|HTTP_PROXY_\w+|HTTP_LOW_SPEED_\w+)"
)
_CONNECTION_SETTINGS = re.compile(
    r"(credential|http)\..+|url\..+\.insteadof|core\.(sshcommand|askpass|gitproxy)|ssh\.variant", re.DOTALL
)

Setting = tuple[str, str]


def run(
    folder: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    online: bool = False,
) -> str:
    """Run git in `folder`; its standard output.

    Args:
        folder: the working folder.
        args: what follows `git`.
        env: variables on top of ours.
        config: settings on top of ours; they are passed out of sight, so an origin with a token may be one.
        stdin: what git reads.
        online: git may use the person's settings to reach an origin.

    Raises:
        NetworkError: an origin could not be reached.
        SourceError: git refused, with its reason.
        SystemFailureError: no space left or no permission.
        PrerequisiteError: there is no git.
    """
    done = _spawn(folder, args, env=env, config=config, stdin=stdin, online=online)
    if done.returncode:
        raise failures.of(args, done.stderr or done.output, returncode=done.returncode)
    return done.output


def succeeds(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> bool:
    """Whether git, run in `folder`, ends with success; for questions such as `merge-base --is-ancestor`."""
    return _spawn(folder, args, env=env, config=None, stdin=None, online=False).returncode == 0


def line(folder: Path, *args: str) -> str:
    """The only line that git writes."""
    return run(folder, *args).strip()


def environment(
    *, env: Mapping[str, str] | None = None, config: Mapping[str, str] | None = None, online: bool = False
) -> dict[str, str]:
    """The whole environment of a run of git; see the module's page for what it keeps out."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GIT_", "LC_", "LANG")) or (online and _CONNECTION_VARIABLES.fullmatch(name))
    }
    fixed: dict[str, str] = {**_FIXED, **(config or {})}
    settings: list[Setting] = [*fixed.items(), *(person_settings() if online else ())]
    return {
        **kept,
        **_as_variables(settings),
        "GIT_ATTR_NOSYSTEM": "1",
        # Command-line settings do not reach the program at the other end of a path origin; a file does.
        "GIT_CONFIG_GLOBAL": str(_fixed_file()),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **(env or {}),
    }


@functools.lru_cache(maxsize=1)
def person_settings() -> tuple[Setting, ...]:
    """How the person reaches private origins, from the configuration git would have used, in its order."""
    env = {**os.environ, "GIT_DIR": os.devnull}
    done = process.run(
        ["git", "config", "--list", "-z", "--includes"], env=env, check=False, separate_stderr=True
    )
    if done.returncode:
        return ()
    pairs = (entry.partition("\n") for entry in done.output.split("\0") if entry)
    # A key without a value (`[http] foo`) means true.
    found = ((key, value if sep else "true") for key, sep, value in pairs)
    return tuple((key, value) for key, value in found if _CONNECTION_SETTINGS.fullmatch(key))


def _spawn(
    folder: Path,
    args: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    config: Mapping[str, str] | None,
    stdin: bytes | None,
    online: bool,
) -> process.Completed:
    return process.run(
        ["git", *args],
        cwd=folder,
        env=environment(env=env, config=config, online=online),
        stdin=stdin,
        check=False,
        separate_stderr=True,
    )


def _as_variables(settings: Iterable[Setting]) -> dict[str, str]:
    pairs = list(settings)
    variables = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def _fixed_file() -> Path:
    """The file with our fixed settings, named by its content, so that it never changes once written."""
    text = config_text(_FIXED.items())
    path = files.cache_dir() / "git" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.config"
    if not path.exists():
        files.write_text(path, text)
    return path


def config_text(settings: Iterable[Setting]) -> str:
    """Settings as a git configuration file (git-config(1), syntax)."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        head = f'[{section} "{_escaped(subsection)}"]' if subsection else f"[{section}]"
        lines.append(f'{head}\n\t{name} = "{_escaped(value)}"\n')
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
