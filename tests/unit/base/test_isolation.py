"""What a program of each kind sees."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import interpreters, isolation, package_index, platforms, process
from cairn.errors import PrerequisiteError, ProcessError
from cairn.isolation import Isolation
from cairn.platforms import landlock, windows

HOME = Path("/a/home")
FOREIGN = [Isolation.BUILD, Isolation.INSTALLER, Isolation.TEST]
SAME = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": "/a/home"}
GIVEN = {
    "PATH": "/bin",
    "HOME": "/h",
    "TMPDIR": "/t",
    "LC_ALL": "de_DE",
    "TZ": "Asia/Tokyo",
    "CC": "clang",
    "PYTHONPATH": "/p",
    "CUDA_HOME": "/c",
    "MKLROOT": "/m",
    "LD_PRELOAD": "/l",
    "SSL_CERT_FILE": "/s",
    "PIP_INDEX_URL": "u",
    "UV_INDEX": "u",
    "VIRTUAL_ENV": "v",
    "CONDA_PREFIX": "c",
    "GITHUB_TOKEN": "t",
    "HIP_VISIBLE_DEVICES": "0",
    "ROCM_SDK_TARGET_FAMILY": "gfx94X-dcgpu",
    "PYTEST_ADDOPTS": "-k ok",
}


# Of a kernel without Landlock, and of root in a container that gives it none of the capabilities to drop.
_BARE = """
import ctypes, struct, sys
from cairn import isolation
from cairn.platforms import landlock
libc = ctypes.CDLL(None, use_errno=True)
# Load the number of a call; 444 (landlock_create_ruleset) fails with ENOSYS, all others go on: seccomp(2).
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50026), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in code))
landlock.drop_capabilities()
assert libc.prctl(38, 1, 0, 0, 0) == 0
program = struct.pack("@HP", len(code), ctypes.addressof(filters))
if "without" in sys.argv:
    assert libc.prctl(22, 2, program, 0, 0) == 0
isolation.credential_files()
isolation.credential_files()
"""


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    ("argument", "token", "warnings"), [("without", "t", 1), ("without", "", 0), ("with", "t", 0)]
)
def test_one_line_says_which_secrets_this_system_cannot_keep_from_foreign_code(
    argument: str, token: str, warnings: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BARE, argument],
        env={"PATH": os.environ["PATH"], "GITHUB_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == done.stderr.count("cannot keep GITHUB_TOKEN from") == warnings


def test_windows_keeps_nothing_apart() -> None:
    assert windows.exposed()


def test_a_build_sees_a_short_list() -> None:
    seen = isolation.variables(Isolation.BUILD, HOME, base=GIVEN)
    assert {name: value for name, value in seen.items() if not name.startswith("GIT_CONFIG_")} == {
        **SAME,
        "PATH": "/bin",
        "TMPDIR": "/t",
        "SSL_CERT_FILE": "/s",
        "PYTHONUTF8": "1",
    }


def test_a_tested_wheel_sees_the_choice_of_gpus_besides() -> None:
    assert isolation.variables(Isolation.TEST, HOME, base=GIVEN) == {
        **SAME,
        "PATH": "/bin",
        "TMPDIR": "/t",
        "SSL_CERT_FILE": "/s",
        "HIP_VISIBLE_DEVICES": "0",
        "PIP_CONFIG_FILE": os.devnull,
        "PYTHONUTF8": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def test_an_installer_sees_nothing_that_steers_it_and_the_users_caches(tmp_path: Path) -> None:
    given = {**GIVEN, "HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "uv")}
    assert isolation.variables(Isolation.INSTALLER, HOME, base=given) == {
        **SAME,
        "PATH": "/bin",
        "TMPDIR": "/t",
        "SSL_CERT_FILE": "/s",
        "ROCM_SDK_TARGET_FAMILY": "gfx94X-dcgpu",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_CACHE_DIR": str(platforms.here.cache_of("pip", given)),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
    }


def test_a_tool_keeps_the_users_home() -> None:
    seen = isolation.variables(Isolation.TOOL, base={**GIVEN, "PYENV_ROOT": "/h/pyenv"})
    assert (seen["HOME"], seen["LC_ALL"], seen["PYENV_ROOT"]) == ("/h", "de_DE", "/h/pyenv")
    assert not {"PYTHONPATH", "PIP_INDEX_URL", "GITHUB_TOKEN", "LD_PRELOAD"} & seen.keys()


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_code_has_no_home_but_its_own(kind: Isolation) -> None:
    with pytest.raises(ValueError, match="needs a home"):
        isolation.variables(kind, base=GIVEN)


@pytest.mark.parametrize("kind", [Isolation.INSTALLER, Isolation.TEST])
def test_a_user_who_wants_no_proxy_at_all_gets_none(kind: Isolation, tmp_path: Path) -> None:
    proxies = {"https_proxy": "http://p", "ALL_PROXY": "http://p"}
    for star in ({"no_proxy": "*"}, {"NO_PROXY": " * "}):
        kept = {"PATH": "/bin", "PIP_PROXY": "http://pips-own", "HOME": str(tmp_path)}
        seen = isolation.variables(kind, HOME, base=kept | proxies | star)
        assert seen == isolation.variables(kind, HOME, base=kept)
    passed = isolation.variables(
        kind, HOME, base={**proxies, "no_proxy": "a.example", "NO_PROXY": "*", "HOME": str(tmp_path)}
    )
    assert passed["no_proxy"] == passed["NO_PROXY"] == "a.example,127.0.0.1,localhost"


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_proxy_is_not_asked_for_what_this_machine_serves(kind: Isolation, tmp_path: Path) -> None:
    base = {"https_proxy": "http://proxy:3128", "NO_PROXY": ".corp", "HOME": str(tmp_path)}
    proxied = isolation.variables(kind, HOME, base=base)
    for name in ("NO_PROXY", "no_proxy"):
        assert proxied[name].split(",") == [".corp", "127.0.0.1", "localhost"]
    assert "no_proxy" not in isolation.variables(kind, HOME, base={"PATH": "/bin", "HOME": str(tmp_path)})


def test_on_windows_a_build_sees_visual_cpp_and_no_home_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "here", windows)
    compiler = {"INCLUDE": "i", "LIB": "l", "VCToolsInstallDir": "v", "WindowsSdkDir": "w"}
    given = {
        "Path": "p",
        "SystemRoot": "C:/Windows",
        "USERPROFILE": "C:/me",
        "APPDATA": "C:/me/r",
        "CL": "/O1",
    }
    seen = isolation.variables(Isolation.BUILD, HOME, base=given | compiler)
    assert seen["USERPROFILE"] == str(HOME)
    assert seen["APPDATA"].startswith(str(HOME))
    assert {"Path", "SystemRoot"} <= seen.keys()
    assert isolation.compiler_variables(given | compiler) == compiler
    assert "CL" not in seen


def test_an_own_home_has_the_logins_of_the_index_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text(
        "machine index.example login me password one\nmachine github.com login me password two\n"
    )
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with isolation.own_home("https://index.example/simple", "../folder") as home:
        assert (home / ".netrc").read_text() == "machine index.example login me password one\n"
        assert (home / ".netrc").stat().st_mode & 0o777 == 0o600
    assert not home.exists()
    with isolation.own_home() as home:
        assert list(home.iterdir()) == []


def test_files_of_credentials_are_found_by_their_usual_names_and_by_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("home/.aws/credentials", "home/.netrc", "home/notes", "token", "a/.credentials", "key", "notes")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(isolation, "_CONCEALED", {})  # keys that other tests have named
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("SOME_TOKEN", "no path at all\n" * 99)
    monkeypatch.setenv("LONG_TOKEN", "/" + "9j4AAQ" * 99)  # longer than a name may be
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRN_SIGN_KEY", "key")
    monkeypatch.setenv("SOME_CONFIG", "notes")
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "a" / "_work" / "_temp"))
    found = {path.relative_to(tmp_path).as_posix() for path in isolation.credential_files()}
    assert found == {"home/.aws", "home/.netrc", "token", "a/.credentials", "key"}


def test_our_own_pip_has_the_users_index_and_nothing_else_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://i.example\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_TARGET", "/x")
    seen = package_index.read_pip_settings().pip_environment(tmp_path)
    assert (seen["PIP_INDEX_URL"], seen["HOME"]) == ("https://i.example", str(tmp_path))
    assert not {"PIP_TARGET", "PIP_USER"} & seen.keys()


def test_a_command_without_credentials_has_its_settings_and_no_secret() -> None:
    mine = {"PATH": "/bin", "HOME": "/home/me", "CAIRN_CACHE_DIR": "/c", "GITHUB_RUN_ID": "5", "CI": "true"}
    names = (
        *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "CAIRN_API_TOKEN", "MY_OWN"),
        *("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"),
    )
    secrets = dict.fromkeys(names, "secret")
    assert isolation.without_credentials(mine | secrets) == mine


def test_a_user_without_a_home_can_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container that runs as a number which no user has."""

    def nobody(_number: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path))
    with pytest.raises(RuntimeError):
        Path.home()
    isolation.credential_files()
    with isolation.own_home("https://index.example/simple") as home:
        assert not list(home.iterdir())
        seen = isolation.variables(Isolation.INSTALLER, home, base={"PATH": "/bin"})
    assert "PIP_CACHE_DIR" not in seen
    package_index.read_pip_settings()
    with pytest.raises(PrerequisiteError, match=r"no Python 3\.99"):
        interpreters.find("3.99")


def test_an_environment_reads_the_packages_that_it_borrows_and_no_other_folder(tmp_path: Path) -> None:
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    lender = tmp_path / "sdk" / "lib" / "python3.11" / "site-packages"
    tree, private, home = tmp_path / "checkout", tmp_path / "private", tmp_path / "home"
    for folder in (site, lender, tree / "src", private, home, tmp_path / "env" / "bin", tmp_path / "sets"):
        folder.mkdir(parents=True)
    (tree / "pyproject.toml").touch()
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    python = tmp_path / "env" / "bin" / "python"
    python.touch(mode=0o755)
    lines = (lender, tree / "src", private, home)
    (site / "a.pth").write_text("".join(f"{line}\n" for line in lines))
    env = {"PATH": "/usr/bin", "HOME": str(home), "DATA": str(tmp_path / "sets")}
    # Not the shipped start of a program: only which folders it would reach.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.delenv(isolation.VARIABLE, raising=False)
        reads, writes, _ = isolation.reach([str(python)], cwd=None, env=env)
    assert {tmp_path / "env", tmp_path / "sdk", tree, tmp_path / "sets"} <= set(reads)
    assert not {private, home, tmp_path, Path("/tmp")} & {*reads, *writes}  # noqa: S108


@pytest.mark.skipif(landlock.version() < 2, reason="this kernel has no Landlock")
def test_a_program_that_is_refused_a_file_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(isolation.VARIABLE, raising=False)
    (tmp_path / "a folder").mkdir()
    file = tmp_path / "a folder" / "data"
    file.write_text("text")
    code = f"open({str(file)[::-1]!r}[::-1]).read()"  # an argument would name the folder
    with pytest.raises(ProcessError) as caught:
        process.run([sys.executable, "-c", code])
    last = caught.value.output.splitlines()[-1]
    assert last.startswith(f"cairn: this program runs confined and may not read {file}; to let it: export")
    monkeypatch.setenv(isolation.VARIABLE, str(file.parent))
    assert process.run([sys.executable, "-c", code]).output == ""


_TRIES = """
import json, pathlib, sys
for line in sys.stdin:
    name, kind, place = json.loads(line)
    path = pathlib.Path(place[::-1])
    try:
        path.read_bytes() if kind == "read" else (path / "new").write_text("text")
    except OSError as error:
        print(f"{name}: {error.strerror}")
"""


def _file(path: Path, text: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.skipif(landlock.version() < 2, reason="this kernel has no Landlock")
def test_a_program_reaches_what_users_have_in_their_homes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, data, work = tmp_path / "home", tmp_path / "data", tmp_path / "data" / "work"
    monkeypatch.setenv("HOME", str(home))
    for name in ("ROCM_SDK_TARGET_FAMILY", "PIP_CACHE_DIR", "UV_CACHE_DIR", isolation.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    reads = {
        "uv's Python elsewhere": _file(data / "pythons/cpython-3.12.1/lib/os.py"),
        "conda": _file(home / "miniconda3/envs/a/lib/libz.so"),
        "pyenv": _file(home / ".pyenv/versions/3.12.1/lib/os.py"),
        "a tool by its link": _file(home / ".local/share/uv/tools/cmake/lib/data"),
        "rustup": _file(home / ".rustup/toolchains/stable/lib/std.so"),
        "editable by a .pth": _file(home / "alpha/src/alpha.py"),
        "editable by a finder": _file(home / "my beta/beta/__init__.py"),
        "certificates": _file(home / "certificates/ca.pem"),
        "requirements": _file(home / "lists/requirements.txt"),
        "find-links": _file(home / "wheels/a.whl"),
        "find-links by address": _file(home / "my wheels/a.whl"),
        "find-links of the folder": _file(work / "near/a.whl"),
        "ROCm": _file(home / "rocm-6.4/lib/libamdhip64.so"),
        "worktree": _file(home / "repository/.git/config"),
        "alternates": _file(home / "reference/objects/pack/a.pack"),
        "alternates of a submodule's submodule": _file(home / "inner/objects/pack/a.pack"),
        "a setting of the project": _file(home / "corpus/text"),
    }
    writes = {
        "TMPDIR": data / "temporary",
        "CCACHE_DIR": home / "ccache",
        "PIP_CACHE_DIR": home / ".cache/pip",
        "UV_CACHE_DIR": home / ".cache/uv",
        "TORCH_HOME": home / "torch",
        "HF_HOME": home / "huggingface",
        "TRITON_HOME": home / "triton",
        "MIOPEN_USER_DB_PATH": home / "miopen",
        "XDG_CACHE_HOME": home / "cache",
        "shared memory": Path("/dev/shm"),  # noqa: S108 - not a temporary file
        "the work folder": work,
    }
    shut = {
        "notes": _file(home / "notes"),
        "a key": _file(home / ".ssh/id"),
        "of others": _file(data / "sets"),
        "what a build has named an alternate": _file(home / "documents/info/notes"),
    }
    for folder in (*writes.values(), data / "empty"):
        folder.mkdir(parents=True, exist_ok=True)
    # An environment on a Python of uv's, which a link names by its minor version, with editable projects.
    (data / "pythons/cpython-3.12").symlink_to(data / "pythons/cpython-3.12.1")
    python = _file(data / "pythons/cpython-3.12.1/bin/python3")
    python.chmod(0o755)
    env = home / "env"
    _file(env / "pyvenv.cfg", f"home = {data}/pythons/cpython-3.12/bin\n")
    (env / "bin").mkdir()
    (env / "bin/python").symlink_to(data / "pythons/cpython-3.12/bin/python3")
    site = env / "lib/python3.12/site-packages"
    _file(site / "alpha.pth", f"{home}/alpha/src\n")
    beta = {"url": (home / "my beta").as_uri(), "dir_info": {"editable": True}}
    _file(site / "beta-1.dist-info/direct_url.json", json.dumps(beta))
    for tree in ("alpha", "my beta"):
        _file(home / tree / "pyproject.toml")
    (home / ".local/bin").mkdir(parents=True)
    tool = _file(home / ".local/share/uv/tools/cmake/bin/cmake")
    (home / ".local/bin/cmake").symlink_to(tool)
    _file(home / "repository/.git/worktrees/work/commondir", "../..\n")
    _file(home / "repository/.git/objects/info/alternates", f"{home}/reference/objects\n{home}/documents\n")
    inner = home / "repository/.git/modules/third party/a/modules/b"
    _file(inner / "objects/info/alternates", f"{home}/inner/objects\n")
    for module in (inner, inner.parents[1]):
        _file(module / "HEAD")
    _file(work / ".git", f"gitdir: {home}/repository/.git/worktrees/work\n")
    (home / "rocm").symlink_to(home / "rocm-6.4")
    (home / "link").symlink_to(work)
    variables = isolation.variables(
        Isolation.INSTALLER,
        data / "empty",
        base={
            "HOME": str(home),
            "SSL_CERT_FILE": str(home / "certificates/ca.pem"),
            "PATH": f"{home}/miniconda3/envs/a/bin:{home}/.local/bin:/usr/bin:/bin",
        },
    )
    variables |= {name: str(folder) for name, folder in writes.items() if name.isupper()}
    variables |= {"ROCM_PATH": str(home / "rocm"), "RUSTUP_HOME": str(home / ".rustup")}
    variables |= {"CORPUS": str(home / "corpus"), "HOME": str(data / "empty")}
    words = ["-r", home / "lists/requirements.txt", "--find-links", home / "wheels", "--find-links", "near/"]
    words += ["--find-links", (home / "my wheels").as_uri(), env / "bin/python"]
    places = {"read": reads, "write": writes, "shut": shut}
    lines = [
        json.dumps([name, "write" if kind == "write" else "read", str(place)[::-1]])
        for kind, named in places.items()
        for name, place in named.items()
    ]
    done = process.run(
        [sys.executable, "-c", _TRIES, *words],
        cwd=home / "link",
        env=variables,
        stdin="\n".join(lines).encode(),
    )
    Path("/dev/shm/new").unlink()  # noqa: S108 - what the program has written
    assert done.output.splitlines() == [f"{name}: Permission denied" for name in shut]


def test_the_address_of_an_index_in_a_folder_leads_to_the_files_of_its_store_alone(tmp_path: Path) -> None:
    store, personal = tmp_path / "store", tmp_path / "files"
    for folder in (store / "files", personal, tmp_path / "simple"):
        folder.mkdir(parents=True)
    for index, mark in (("release", "state"), ("release/gfx110X-all", "state"), ("sets/1f", "set")):
        (store / index / "simple").mkdir(parents=True)
        (store / index / f"{mark}.json").touch()
        places = list(isolation.places_in(f"--index-url=file://{store}/{index}/simple/"))
        assert places == [store / index / "simple", store / "files"]
    assert list(isolation.places_in(f"file://{tmp_path}/simple")) == [tmp_path / "simple"]


@pytest.mark.parametrize("option", ["-I", "-L", "-B", "-F", "-isystem ", "-fmap=", "-Wl,-rpath,"])
def test_folders_in_the_flags_of_a_compiler(tmp_path: Path, option: str) -> None:
    """As the stack pyg has them in CXXFLAGS."""
    flags = f'-g0 "-fmap=/nowhere=." "{option}{tmp_path}" -O2'
    assert list(isolation.places_in(flags)) == [tmp_path]
