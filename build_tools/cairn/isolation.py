"""The environment variables that build backends, installers and tests see: a short list, and nothing else.

| kind | runs | sees besides what all see |
| --- | --- | --- |
| `BUILD` | build backends, hipify, the SDK's programs | on Windows, Visual C++ (`compiler_variables`) |
| `INSTALLER` | pip and uv, which call the backend of an sdist | their caches, the SDK's choice of a family |
| `TEST` | tests, probes, and the pip that installs what they test | the user's name, the choice of GPUs |
| `TOOL` | what runs no foreign code, such as an interpreter that is asked | the user's own folders |

All see `PATH`, where temporary files go, proxies and certificates, and what Windows needs. The first three
run foreign code: these see a home folder of their own (`own_home`), one locale and one time zone, so that two
machines build alike. What else a build is to see, its stack.toml or `--build-env` names, and both are in the
cache's keys and the manifest; what a test is to see, its suite.toml or `--test-env` names.

`reach` is the same for files: what a program reads and writes is named, and the rest of the disk is shut
where the system can do that (`platforms.landlock`). docs/explanation/isolation.md says what both protect,
and what they do not.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import glob
import itertools
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cairn import files, platforms
from cairn.output import console


class Isolation(enum.Enum):
    """The kinds of program; the module's table says what each is for."""

    BUILD = "build"
    INSTALLER = "installer"
    TEST = "test"
    TOOL = "tool"


def _names(*patterns: str) -> re.Pattern[str]:
    # Windows' own names are told apart without regard to case, and proxies are written both ways.
    return re.compile("|".join(patterns), re.IGNORECASE)


_PROXY = _names(r"(https?|ftp|all|no)_proxy")
_EVERY = _names(
    r"PATH|TMPDIR|TEMP|TMP",
    _PROXY.pattern,
    r"SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO|PIP_CERT",
    # What programs for Windows do not start without, or find the system's own folders by.
    r"SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|OS",
    r"NUMBER_OF_PROCESSORS|PROCESSOR_(ARCHITECTURE|ARCHITEW6432)",
    r"PROGRAM(DATA|FILES(\(X86\))?|W6432)|COMMONPROGRAM(FILES(\(X86\))?|W6432)|ALLUSERSPROFILE",
)
_OF_KIND = {
    Isolation.BUILD: _names(r"(?!)"),
    Isolation.INSTALLER: _names(
        r"ROCM_SDK_TARGET_FAMILY|(PIP|UV)_CACHE_DIR|PIP_(CLIENT_CERT|PROXY|DEFAULT_TIMEOUT|TRUSTED_HOST)"
    ),
    Isolation.TEST: _names(
        r"USER|USERNAME|LOGNAME|TERM|(ROCR|HIP|CUDA)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL",
        r"PIP_(CLIENT_CERT|PROXY|DEFAULT_TIMEOUT|TRUSTED_HOST)",
    ),
    # Where pyenv and uv keep Pythons, and the home below which both do by default.
    Isolation.TOOL: _names(
        r"HOME|USERPROFILE|(LOCAL)?APPDATA|USER|USERNAME|LOGNAME|TERM|LANG|LC_\w+|TZ|XDG_\w+|NETRC",
        r"PYENV_ROOT|PYENV_VERSION|UV_PYTHON_(INSTALL|BIN)_DIR|(PIP|UV)_CACHE_DIR",
    ),
}
# What the command prompt of Visual C++ sets (vcvarsall.bat), and setuptools goes by with DISTUTILS_USE_SDK.
_VISUAL_CPP = _names(
    r"INCLUDE|EXTERNAL_INCLUDE|LIB|LIBPATH|VC(INSTALLDIR|IDEINSTALLDIR|Tools(InstallDir|Version|RedistDir))",
    r"VSINSTALLDIR|VSCMD_(ARG_\w+|VER)|VisualStudioVersion|DevEnvDir|Platform|WindowsSdk\w*|UCRTVersion",
    r"UniversalCRTSdkDir|ExtensionSdkDir|Framework(Dir|Version)\w*",
)
# What Cairn and the programs that it runs are set up by.
_OF_TOOLS = _names(
    r"(CAIRN|PIP|UV|ZIG|CCACHE|SCCACHE)_\w+|SOURCE_DATE_EPOCH|CC|CXX|COLUMNS|CI|VIRTUAL_ENV|CONDA_PREFIX",
    r"GITHUB_(ACTIONS|RUN_ID|RUN_ATTEMPT|SERVER_URL|REPOSITORY|REPOSITORY_OWNER|OUTPUT|STEP_SUMMARY)",
)
_NO_PIP_CONFIG = {"PIP_CONFIG_FILE": os.devnull}  # pip's documentation: this disables all configuration files
_ADDED: Mapping[Isolation, Mapping[str, str]] = {
    # git refuses a tree that somebody else owns (container builds) unless it is told to trust it, which the
    # user's own configuration may have done and is not seen here (git-config(1), `safe.directory`).
    Isolation.BUILD: {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "PYTHONUTF8": "1",
    },
    Isolation.INSTALLER: {**_NO_PIP_CONFIG, "PIP_ROOT_USER_ACTION": "ignore"},
    Isolation.TEST: {**_NO_PIP_CONFIG, "PYTHONUTF8": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    Isolation.TOOL: _NO_PIP_CONFIG,
}
# Where programs keep what they log in with, below a home folder.
_CREDENTIALS = (
    *(".aws", ".azure", ".boto", ".cargo/credentials", ".cargo/credentials.toml", ".config/gcloud"),
    *(".config/gh", ".config/git/credentials", ".config/hub", ".config/pip", ".config/rclone", ".docker"),
    *(".git-credentials", ".gnupg", ".kube", ".local/share/keyrings", ".local/share/uv/credentials"),
    *(".netrc", "_netrc", ".npmrc", ".password-store", ".pip", ".pypirc", ".s3cfg", ".ssh", ".vault-token"),
)
_NAMES_A_KEY = _names(r"CAIRN_\w+_KEY")
_NAMES_A_SECRET = _names(r"\w*(TOKEN|SECRET|PASS|CREDENTIAL|KEY|NETRC|CONFIG)\w*")
SECRET = re.compile(
    r"(?:^|_)(?:TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH"
    r"|API_?KEY|ACCESS_KEY|PRIVATE_KEY)(?:_|$)",
    re.IGNORECASE,
)
"""Is found in the name of a variable that holds a secret."""
VARIABLE = "CAIRN_FOREIGN_DIRS"
"""The variable of ours with folders that foreign code reads and writes besides."""
# A runner of GitHub's keeps its own below its folder, of which RUNNER_TEMP is `_work/_temp`.
_OF_RUNNER = (".credentials", ".credentials_rsaparams")
_CONCEALED: dict[Path, None] = {}  # of this process, whichever thread starts a program
# What every program may read: the system, and no folder of data or of services (/home, /root, /run, /srv,
# /tmp, /var). Of /etc, what every user may read.
_SYSTEM = (
    *("/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    *("/proc", "/sys", "/run/current-system", "/run/opengl-driver"),
    *("/var/cache/fontconfig", "/var/lib/ca-certificates", "/var/lib/dpkg", "/var/lib/rpm"),
)
_DEVICES = re.compile(r"null|zero|full|u?random|tty|ptmx|pts|shm|kfd|dri|accel|infiniband|nvidia.*")
_IS_WRITTEN = _names(
    r"HOME|USERPROFILE|\w*CACHE\w*|\w*(SCRATCH|OUTPUT|STATSLOG|TMP|TEMP)(_?(DIR|FILE|PATH))?",
    r"\w*_(OUT|DB|LOG)(_\w+)?|(HF|TORCH|TRITON)_HOME",
)
_NAMES_NO_FOLDER = _names(r"PATH|PWD|OLDPWD|SHELL|MAIL|(SSH|DBUS)_\w+|XDG_(CONFIG|DATA|STATE|RUNTIME)\w+")
PLACE = re.compile(r"(?:(?<![\w.])|(?<=-[BFIL]))/[^\s\"'`:;,=|&<>(){}\[\]\\]*[^\s\"'`:;,=|&<>(){}\[\]\\.]")
_MARKS = ("state.json", "set.json")  # one stands beside the pages of an index, or of a set
_EVERYWHERE = Path(os.sep)


def variables(
    isolation: Isolation, home: Path | None = None, *, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables of a program of this kind.

    Args:
        isolation: the kind.
        home: its home folder (`own_home`); None for a `TOOL`, which has the user's.
        base: what there is to choose from; the caller's own by default.
    """
    environ = os.environ if base is None else base
    allowed = _OF_KIND[isolation]
    passed = {
        name: value for name, value in environ.items() if _EVERY.fullmatch(name) or allowed.fullmatch(name)
    }
    if isolation is Isolation.BUILD:
        passed |= compiler_variables(environ)
    passed = _direct(passed) | dict(_ADDED[isolation])
    if isolation is Isolation.TOOL:
        return passed
    if home is None:
        raise ValueError(f"a program of the kind {isolation.value} needs a home folder of its own")
    passed |= {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"} | platforms.here.home_variables(home)
    if isolation is Isolation.INSTALLER:
        with contextlib.suppress(RuntimeError):  # without a home of the user, theirs are in their own
            passed.setdefault("PIP_CACHE_DIR", str(platforms.here.cache_of("pip", environ)))
            passed.setdefault("UV_CACHE_DIR", str(platforms.here.cache_of("uv", environ)))
        for name in passed.keys() & {"PIP_CACHE_DIR", "UV_CACHE_DIR"}:
            # One that foreign code made beside hidden folders would be hidden, too (`platforms.landlock`).
            with contextlib.suppress(OSError):
                Path(passed[name]).mkdir(parents=True, exist_ok=True)
    return passed


def without_credentials(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of our commands that run foreign code: settings, and nothing named as a secret."""
    environ = os.environ if base is None else base
    allowed = (_EVERY, *_OF_KIND.values(), _VISUAL_CPP, _OF_TOOLS)
    return {
        name: value
        for name, value in environ.items()
        if any(names.fullmatch(name) for names in allowed) and not SECRET.search(name)
    }


def compiler_variables(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of the machine's compiler for builds: Visual C++ on Windows, else none.

    They change what is compiled, so they are in the cache's keys.
    """
    environ = os.environ if base is None else base
    if platforms.here.stack_section() != "windows":
        return {}
    return {name: value for name, value in environ.items() if _VISUAL_CPP.fullmatch(name)}


def conceal(path: Path) -> None:
    """Add a file to those that foreign code cannot read, such as a private key that an option names."""
    _CONCEALED[path.absolute()] = None


def credential_files() -> tuple[Path, ...]:
    """Where the user's credentials usually are, and the files that options and variables of secrets name.

    Foreign code is kept from reading these where the system can do that (`process.run`, `hidden`). It is a
    list of names: what lies elsewhere is not on it. Where the system cannot keep it from the secrets among
    our variables either, one warning says so.
    """
    _warn_of_exposed()
    temporary = os.environ.get("RUNNER_TEMP")
    of_runner = [Path(temporary).parent.parent / name for name in _OF_RUNNER] if temporary else ()
    usual = filter(os.path.exists, (*_at_home(*_CREDENTIALS), *of_runner))
    # MY_CONFIG=setup.cfg names a file of a build: only a whole path does here.
    values = [v for name, v in os.environ.items() if os.sep in v and _NAMES_A_SECRET.fullmatch(name)]
    return tuple(dict.fromkeys((*key_files(), *usual, *_files_at(filter(os.path.isabs, values)))))


def key_files() -> tuple[Path, ...]:
    """The private keys that options and variables of Cairn name."""
    values = [value for name, value in os.environ.items() if _NAMES_A_KEY.fullmatch(name)]
    return (*filter(Path.exists, _CONCEALED), *_files_at(values))


def reach(
    words: Sequence[str],
    *,
    cwd: Path | None,
    env: Mapping[str, str],
    writes: Iterable[Path] = (),
) -> platforms.Reach:
    """Return the files that a foreign program reaches: the system, its interpreter, and what is named for it.

    It reads what its `words` (command, input) and variables name, and the repository of its working folder.
    It writes to that folder, to the home, temporary and cache folders among its variables, to `writes` and to
    the folders of `CAIRN_FOREIGN_DIRS`. No path names a folder that leads to the user's home, or one of
    everybody's temporary files.
    """
    if _is_confined():  # as what smoke tests start: it stays where it is
        return (_EVERYWHERE,), (_EVERYWHERE,), ()
    # Git starts hundreds of times a minute: what has no separator is not looked at, and no path by its parts.
    devices = (path for path in Path("/dev").glob("*") if _DEVICES.fullmatch(path.name))  # none on Windows
    folders = map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    written = [*writes, *_caches(words, env), *devices]
    read = [*_at_home(".pyenv", ".local/share/uv/python")]
    for name, value in env.items():
        if os.sep in value and not _NAMES_NO_FOLDER.fullmatch(name):
            is_written = _IS_WRITTEN.fullmatch(name)
            (written if is_written else read).extend(places_in(value))
            if is_written and value.startswith(os.sep) and not Path(value).exists():
                written.append(Path(value).parent)  # of a file that it is to write
    # git ends where it cannot read what is there.
    of_git = Path(words[0]).stem == "git" and "GIT_CONFIG_GLOBAL" not in env
    read += _at_home(".gitconfig", ".config/git/config") if of_git else ()
    base = cwd or Path(os.curdir)
    for word in words:
        read += [*places_in(word), *([base / word] if os.sep in word else ())]
    read += [path.parent for path in read if path.suffix == ".py"]  # a script imports its neighbours
    path = env.get("PATH", os.defpath)
    for program in dict.fromkeys((shutil.which(words[0], path=path) or words[0], *words[1:])):
        if os.sep in program and os.access(program, os.X_OK) and Path(program).is_file():
            read += _around(Path(program).absolute())
    read += repository_of(base.absolute()) if cwd else ()
    is_wide = functools.partial(_is_wide, above_home=_folders_to_home())
    read, written = (list(itertools.filterfalse(is_wide, dict.fromkeys(at))) for at in (read, written))
    read += [*_system(), *_of_programs(path)]
    written += [*folders, *([cwd] if cwd else ())]
    return dict.fromkeys(read), dict.fromkeys(written), credential_files()


def _caches(words: Sequence[str], env: Mapping[str, str]) -> Iterator[Path]:
    folders = [word for option, word in itertools.pairwise(words) if option == "--cache-dir"]
    for cache in map(Path, (*folders, *(value for name, value in env.items() if "CACHE_DIR" in name))):
        if cache.is_absolute():
            with contextlib.suppress(OSError):  # the program cannot make one in a folder that it only reads
                cache.mkdir(parents=True, exist_ok=True)
            yield cache


def all_but_credentials() -> platforms.Reach:
    """Return what Cairn itself reaches where it has no credentials, and confines what it starts in turn."""
    return (_EVERYWHERE,), (_EVERYWHERE,), credential_files()


@functools.cache
def _is_confined() -> bool:
    """Whether we are foreign code ourselves: no such program may list the root folder."""
    try:
        return not any(True for _ in _EVERYWHERE.iterdir())
    except PermissionError:
        return True


@functools.cache
def _system() -> tuple[Path, ...]:
    public = []
    with contextlib.suppress(OSError):  # a service's key is for its user alone, and root is to have no more
        public = [at for at in Path("/etc").iterdir() if at.exists() and at.stat().st_mode & stat.S_IROTH]
    ours = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[1])
    return tuple(path for path in (*map(Path, _SYSTEM), *ours, *public) if not _is_wide(path))


def _is_wide(path: Path, above_home: AbstractSet[tuple[int, int]] = frozenset()) -> bool:
    """Whether a folder leads to all of a user's files, or is for everybody's temporary ones."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # nothing there
        return True
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if is_sticky and os.path.realpath(path) != "/dev/shm":  # noqa: S108 - shared memory
        return True
    return (status.st_dev, status.st_ino) in (above_home or _folders_to_home())


def _folders_to_home() -> set[tuple[int, int]]:
    """The user's home and all folders above it, as device and inode: no path to them reads differently."""
    home = os.path.realpath(*_at_home("") or [_EVERYWHERE])
    statuses = [path.stat() for path in (Path(home), *Path(home).parents) if path.exists()]
    return {(status.st_dev, status.st_ino) for status in statuses}


def places_in(text: str) -> Iterator[Path]:
    """The paths in an argument or a variable, and the files of the store that an index named there is of."""
    if os.sep not in text:
        return
    whole = text.partition("=")[2] if text.startswith("-") else text
    places = PLACE.findall(text.replace("file://", " "))
    absolute = filter(os.path.isabs, dict.fromkeys((whole, *places, *map(unquote, places))))
    for path in map(Path, filter(os.path.exists, absolute)):
        yield path
        if path.name == "simple" and any(map(os.path.isfile, map(path.parent.joinpath, _MARKS))):
            yield from [at / "files" for at in path.parents[1:3] if (at / "files").is_dir()][:1]


@functools.lru_cache
def _of_programs(path: str) -> tuple[Path, ...]:
    """What programs on a PATH need: their installations, also those that a folder of links leads to."""
    places: list[Path] = []
    for folder in map(Path, dict.fromkeys(filter(None, path.split(os.pathsep)))):
        places += _around(folder / "program")
        with contextlib.suppress(OSError):
            if not folder.resolve().is_relative_to("/usr"):  # as /bin is, with thousands of links
                places += [place for link in folder.iterdir() if link.is_symlink() for place in _around(link)]
    return tuple(place for place in dict.fromkeys(places) if not _is_wide(place))


def _around(program: Path) -> Iterator[Path]:
    """The installations that a program belongs to, by its own path and by where links lead."""
    for path in dict.fromkeys((program, program.resolve())):
        folder, top = path.parent, path.parent.parent
        yield folder
        if folder.name in ("bin", "sbin", "Scripts"):
            if top.name == ".local" or _is_wide(top):
                yield from (top / name for name in ("include", "lib", "lib64", "libexec"))
            else:
                yield top
        with contextlib.suppress(OSError):  # an environment's interpreter lies in a different place
            for line in (top / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.partition("=")
                if key.strip() == "home":
                    yield from _around(Path(value.strip(), "python3"))
            yield from _borrowed_packages(top)


def _borrowed_packages(environment: Path) -> Iterator[Path]:
    """Where an environment has packages from besides: environments and source trees that `.pth` files name.

    A back end may have its trees found by code. Of these, direct_url.json tells (PEP 610). What was installed
    there may have written such a file, so it opens no folder of a different kind.
    """
    packages = f"{glob.escape(str(environment))}/lib/python*/site-packages"
    names = (f"{packages}/*.pth", f"{packages}/*.dist-info/direct_url.json")
    for file in (Path(path) for name in names for path in glob.iglob(name, include_hidden=True)):  # noqa: PTH207
        with contextlib.suppress(OSError, ValueError):
            text = file.read_text(encoding="utf-8", errors="replace")
            lines = text.splitlines() if file.suffix == ".pth" else places_in(json.loads(text)["url"])
            for folder in filter(Path.is_absolute, map(Path, lines)):
                if folder.name == "site-packages":
                    yield folder.parents[2]
                for tree in (folder, folder.parent):
                    if (tree / "pyproject.toml").is_file() or (tree / "setup.py").is_file():
                        yield tree


def repository_of(folder: Path) -> tuple[Path, ...]:
    """Return where git keeps the repository of a folder, and what it borrows (gitrepository-layout(5))."""
    places: list[Path] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):  # ValueError: a zero byte in a name
        is_bare = (folder / "objects").is_dir() and (folder / "HEAD").is_file()
        above = (place / ".git" for place in (folder, *folder.parents))
        places.append(folder if is_bare else next(path for path in above if path.exists()))
        if places[0].is_file():  # of a submodule, or of a linked worktree
            places.append(places[0].parent / os.fsdecode(places[0].read_bytes()).partition(":")[2].strip())
        if (common := places[-1] / "commondir").is_file():
            places.append(places[-1] / os.fsdecode(common.read_bytes()).strip())
        parts = [*places]
        for module, folders, entries in (step for git in places for step in os.walk(git / "modules")):
            if "HEAD" in entries:  # the repository of a submodule: it has those of its own submodules below
                folders[:] = {"modules"}.intersection(folders)
                parts.append(Path(module))
        places += [at for part in parts for at in borrowed_by(part / "objects")]
    return tuple(places)


def borrowed_by(objects: Path) -> list[Path]:
    """Return the object folders that one borrows from, and those that these do; no other folder."""
    places = [objects]
    for place in places:
        with contextlib.suppress(OSError):
            lines = os.fsdecode((place / "info/alternates").read_bytes().partition(b"\0")[0]).split("\n")
            places += [at for line in lines if (at := place / line) not in places and at.name == "objects"]
    return places[1:]


def logins() -> Sequence[Path]:
    """Return where the user's logins are, for what may have them."""
    return _at_home(*_CREDENTIALS)


def _files_at(values: Iterable[str]) -> Iterator[Path]:
    for value in values:
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # no path at all, such as a token
            if (path := Path(value).expanduser().absolute()).is_file():
                yield path


def level(*, network: bool = False) -> str:
    """Return a line that says how far this system confines foreign code, and what stays open."""
    line = platforms.here.confinement() or "foreign code reaches all your files: nothing confines it here"
    shut = "namespaces shut the network, but not to what installs packages"
    return f"{line}; {'the network is open' if network or not platforms.here.entrance()[0] else shut}"


@functools.cache  # once a run
def _warn_of_exposed() -> None:
    if console.current().verbose:
        console.current().info(level())
    secrets = sorted(name for name, value in os.environ.items() if value and SECRET.search(name))
    if secrets and (whose := platforms.here.exposed()):
        console.current().warn(
            f"this system cannot keep {', '.join(secrets)} from builds and tests: "
            f"they can read the variables of {whose} (docs/explanation/isolation.md)"
        )


@contextlib.contextmanager
def own_home(*logins_for: str) -> Iterator[Path]:
    """An empty home folder for foreign code, which goes with all that is written into it.

    Args:
        logins_for: addresses of package indexes, whose hosts' logins are there from the user's netrc file.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-home-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        if hosts := {host for url in logins_for if (host := urlsplit(url).hostname)}:
            from cairn import web  # noqa: PLC0415 - it loads HTTP and TLS

            entries = ((host, *login) for host, login in web.logins().items() if host in hosts)
            lines = [f"machine {host} login {user} password {word}\n" for host, user, word in entries]
            if lines:
                files.write_text(home / ".netrc", "".join(lines))
                (home / ".netrc").chmod(0o600)
        yield home


@contextlib.contextmanager
def temporary_files() -> Iterator[dict[str, str]]:
    """Variables that give programs a folder for their temporary files; what they leave goes with it."""
    # Not in the work folder: the path of a Unix socket has at most 107 bytes (unix(7)).
    with tempfile.TemporaryDirectory(prefix="cairn-build-", ignore_cleanup_errors=True) as folder:
        yield dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)


def _at_home(*names: str) -> Sequence[Path]:
    """These paths in the user's home; none where it is not known, as in a container without users."""
    try:
        return _below(Path.home(), names)
    except RuntimeError:
        return ()


@functools.lru_cache
def _below(folder: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(folder / name for name in names)


def _direct(passed: dict[str, str]) -> dict[str, str]:
    """Bypass proxies for servers on this machine, which no proxy can reach."""
    proxies = {name for name in passed if _PROXY.fullmatch(name)}
    if not proxies:
        return passed
    no_proxy = (passed.get("no_proxy") or passed.get("NO_PROXY") or "").strip()
    if no_proxy == "*":  # no proxy at all; uv does not know it, and others only where it stands alone
        return {name: value for name, value in passed.items() if name not in proxies}
    # Programs read the name in lower case first, and some no other: curl(1).
    direct = ",".join(filter(None, (no_proxy, "127.0.0.1", "localhost")))
    return passed | {"no_proxy": direct, "NO_PROXY": direct}
