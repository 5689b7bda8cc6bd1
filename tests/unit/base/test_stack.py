import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn import datafile, stack
from cairn.errors import UsageError

ROOT = Path(__file__).parents[3]
# Not shipped stacks: what the reader refuses. The shipped ones are read below.
HEAD = 'schema = "cairn.stack/1"\nname = "s"\nline = "nightly"\ntargets = ["cpu"]\n'


def project(name: str, *, needs: str = "[]", origin: str = '{ url = "u" }', more: str = "") -> str:
    return (
        f'[[projects]]\nname = "{name}"\ndistribution = "{name}"\ncheckout_dir = "{name}"\n'
        f'origin = {origin}\nhashtag = "main"\nneeds = {needs}\n{more}\n'
    )


def load(tmp_path: Path, text: str) -> stack.Stack:
    path = tmp_path / "stack.toml"
    path.write_text(text)
    return stack.load(path)


def test_ranks_follow_the_edges(tmp_path: Path) -> None:
    text = (
        HEAD
        + project("c", needs='["b"]')
        + project("b", needs='["a"]')
        + project("d", needs='["b"]')
        + project("a")
    )
    ranks = load(tmp_path, text).ranks()
    assert [[p.name for p in rank] for rank in ranks] == [["a"], ["b"], ["c", "d"]]


def test_a_line_changes_origin_and_hashtag(tmp_path: Path) -> None:
    more = '[projects.lines."release/2.9"]\norigin = { tree = "repos/t" }\nhashtag = "release/2.9"'
    loaded = load(tmp_path, HEAD + project("t", more=more))
    on_line = loaded.for_line("release/2.9").project("t")
    assert on_line.hashtag == "release/2.9"
    assert on_line.origin.tree == str(tmp_path / "repos" / "t")
    assert loaded.for_line(None).project("t").hashtag == "main"
    with pytest.raises(UsageError, match=r"release/9\.9"):
        loaded.for_line("release/9.9")


def test_the_lines_of_a_stack_are_those_of_each_project_that_follows_them(tmp_path: Path) -> None:
    lines = '[lines]\nnightly = {}\n"release/2.9" = { v = "release/0.24" }\n"release/2.10" = {}\n'
    follows = project("f").replace('"main"', '"{line}"')
    fork = '[projects.lines."release/*"]\norigin = { url = "fork" }\n[projects.lines."release/2.9"]\n'
    fork += 'origin = { url = "own" }'
    text = HEAD + lines + follows + project("v").replace('"main"', '"v-{line}"') + project("t", more=fork)
    loaded = load(tmp_path, text)
    assert loaded.line_names() == ("nightly", "release/2.10", "release/2.9")
    found = {
        line: [(p.hashtag, p.origin.url) for p in loaded.for_line(line).projects]
        for line in (None, *loaded.line_names())
    }
    assert found == {
        None: [("nightly", "u"), ("v-nightly", "u"), ("main", "u")],
        "nightly": [("nightly", "u"), ("v-nightly", "u"), ("main", "u")],
        "release/2.9": [("release/2.9", "u"), ("release/0.24", "u"), ("main", "own")],
        "release/2.10": [("release/2.10", "u"), ("v-release/2.10", "u"), ("main", "fork")],
    }
    assert not load(tmp_path, HEAD + lines.replace(" v ", " t ") + project("t")).project("t").lines.keys() - {
        "release/2.9"
    }


def test_the_more_exact_hashtag_of_a_line_wins(tmp_path: Path) -> None:
    lines = '[lines]\n"r/1" = { t = "stack" }\n"r/2" = { t = "stack" }\n"r/3" = {}\n'
    own = '[projects.lines."r/*"]\nhashtag = "pattern"\n[projects.lines."r/1"]\nhashtag = "own"\n'
    loaded = load(tmp_path, HEAD + lines + project("t", more=own))
    found = {line: loaded.for_line(line).project("t").hashtag for line in loaded.line_names()}
    assert found == {"nightly": "main", "r/1": "own", "r/2": "stack", "r/3": "pattern"}


@pytest.mark.parametrize("each_needs", [1, 2])
def test_many_projects_that_need_each_other_are_read_at_once(tmp_path: Path, each_needs: int) -> None:
    # Deeper than Python's stack; with more ways from the last to the first than can be walked one by one.
    needs = [
        [f"p{number - back}" for back in range(1, each_needs + 1) if number >= back] for number in range(1200)
    ]
    text = "".join(project(f"p{number}", needs=str(some)) for number, some in enumerate(needs))
    assert len(load(tmp_path, HEAD + text).ranks()) == len(needs)


def test_a_line_is_known_though_all_projects_are_the_same_on_it(tmp_path: Path) -> None:
    loaded = load(tmp_path, HEAD + "[lines]\nmain = {}\n" + project("t"))
    assert loaded.for_line("main").project("t").hashtag == "main"
    assert not loaded.project("t").lines


def test_a_line_that_only_a_project_names_is_known_though_it_changes_nothing(tmp_path: Path) -> None:
    loaded = load(tmp_path, HEAD + project("t", more='[projects.lines.main]\nhashtag = "main"'))
    assert loaded.for_line("main").project("t").hashtag == "main"


def test_the_stacks_we_have_are_on_the_lines_that_upstream_names() -> None:
    pytorch = stack.load(ROOT / "external-builds/pytorch")
    on = {p.name: p for p in pytorch.for_line("release/2.9").projects}
    assert {name: p.hashtag for name, p in on.items()} == {
        "torch": "release/2.9",
        "audio": "release/2.9",
        "vision": "release/0.24",
        "triton": "main",
        "apex": "master",
    }
    assert on["torch"].origin.url == "https://github.com/ROCm/pytorch.git"
    nightly = {p.name: p for p in pytorch.for_line("nightly").projects}
    assert nightly["torch"].origin.url == "https://github.com/pytorch/pytorch.git"
    assert [nightly[name].hashtag for name in ("torch", "audio", "vision")] == ["nightly"] * 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema = 1", "schema"),
        (HEAD, "projects"),
        (HEAD + project("a") + project("a"), "twice"),
        (HEAD + project("a", more='flag = "b"') + project("b"), "flag for two"),
        (HEAD + project("a", needs='["z"]'), "z"),
        (HEAD + project("a", needs='["b"]') + project("b", needs='["a"]'), "circle"),
        (HEAD + project("a", origin="{}"), "origin"),
        (HEAD + project("a", more='hipify = "maybe"'), "hipify"),
        (HEAD + '[lines]\n"x" = { b = "y" }\n' + project("a"), "'b'"),
        (HEAD + '[lines]\n"release/*" = {}\n' + project("a"), r"'release/\*' is not a name"),
        (HEAD + '[lines]\n"" = {}\n' + project("a"), "a name in lines is empty"),
        (HEAD + '[lines]\n"x" = { a = "" }\n' + project("a"), "lines.x.a is empty"),
        (HEAD + project("a", more='[projects.lines."releas/*"]\nhashtag = "x"'), r"'releas/\*'"),
        (HEAD + "[environment.rocm]\nX = 1\n" + project("a"), "X"),
        ("= =", "TOML"),
    ],
)
def test_a_bad_stack_is_one_clear_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load(tmp_path, text)


# Every field of the model that holds texts.
FULL = """
schema = "cairn.stack/1"
name = "s"
line = "main"
targets = ["gfx942"]
version_suffix = "+cpu"
extra_wheels = ["numpy"]
smoke_tests = ["smoke-tests"]
install = ["a"]
pythons = ["3.11"]
platforms = ["linux_x86_64"]
lines = { "release/1" = { a = "release/1" } }
features = { flash = { needs = ["a"], needs_windows = ["a"], targets = ["gfx9"], broken = [{ platform = "windows", project = "a", file = "f", text = "t" }] } }
device_wheels = { prefix = "amd", runtime = "7.10" }
environment.always = { V = "1" }
sdk = { version = "7.10.0", build = ["make", "x"], packages = "p.toml", build_requires = ["zig"], machine = ["m", "x"], preload = ["hip"], preload_windows = ["hip"] }
gate = { required = ["a"], records.suite.configs = ["default"], allow = "allow.toml", notify = ["send", "x"], rebuilders.you = "0000000000000000000000000000000000000000000000000000000000000000" }

[[projects]]
name = "a"
distribution = "a"
checkout_dir = "a"
flag = "pa"
origin = { sdist = "a==1", sha256 = "ab" }
hashtag = "main"
lines = { "release/*" = { origin = { url = "u" }, hashtag = "r" }, main = { origin = { tree = "t" } } }
source_dirs = ["src"]
version_file = "VERSION"
environment = { always = { V = "1" }, linux = { V = "1" }, windows = { V = "1" }, rocm = { V = "1" }, rocm_linux = { V = "1" }, rocm_windows = { V = "1" }, cpu = { V = "1" } }
cmake.always = { V = "1" }
reads = ["USE_*"]
build_requires = ["wheel"]
build_requires_file = "r.txt"
config_settings = { "--x" = "1" }
downloads = [{ name = "d", url = "u", sha256 = "ab", file = "f", pattern = "p", feature = "flash" }]
carries = [{ path = "a/x.dll", platform = "windows", variable = "V", find = "*/x.dll", feature = "flash" }]
windows = { origin = { url = "u" }, hashtag = "w" }
empty_dirs = ["e"]
requires = ["numpy"]
requires_rocm = ["rocm"]
rocm_init = "a/_rocm_init.py"
smoke_imports = ["a"]

[[projects]]
name = "b"
distribution = "b"
checkout_dir = "b"
origin.url = "u"
hashtag = "main"
needs = ["a"]

[budgets.a]
namespaces = ["c10"]

[[consumers]]
name = "user"
requirement = "user==1.0"
index_url = "https://example.org/simple"

[[consumers]]
name = "ours"
wheels = ["ours-*.whl"]

[[consumers]]
name = "pyg"
index = "release"
"""  # noqa: E501
EMPTY_IS_FINE = re.compile(
    r"sdk\.(build|machine)\.1|gate\.notify\.1|device_wheels\.prefix"
    r"|(projects\.0\.)?(environment|cmake)\.\w+\.V|projects\.0\.(config_settings\..*|version_file|downloads\.0\.pattern)"
    r"|projects\.0\.carries\.0\.(variable|find)"
)


def places(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, str):
        yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*at, key))


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def text_fields(kind: Any, seen: set[object]) -> Iterator[str]:
    """`Project.hashtag` of each field of the model that holds texts."""
    if isinstance(kind, msgspec.inspect.StructType) and kind.cls not in seen:
        seen.add(kind.cls)
        for field in kind.fields:
            yield from text_fields(field.type, seen)
            parts = [field.type]
            while parts:
                part = parts.pop()
                if isinstance(part, msgspec.inspect.StrType):
                    yield f"{kind.cls.__name__}.{field.name}"
                for inner in ("types", "item_type", "value_type"):
                    more = getattr(part, inner, ())
                    parts += more if isinstance(more, tuple) else [more]
    for inner in ("types", "item_type", "value_type"):
        more = getattr(kind, inner, ())
        for part in more if isinstance(more, tuple) else [more]:
            yield from text_fields(part, seen)


def fields_set(value: object) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            if inner != field.default and inner:
                yield f"{type(value).__name__}.{field.name}"
                yield from fields_set(inner)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from fields_set(inner)
    elif isinstance(value, tuple):
        for inner in value:
            yield from fields_set(inner)


def test_the_full_stack_has_every_field_of_texts(tmp_path: Path) -> None:
    load(tmp_path, FULL)
    read = datafile.from_plain(tomllib.loads(FULL), stack.Stack, name="stack.toml")
    wanted = set(text_fields(msgspec.inspect.type_info(stack.Stack), set())) - {"Stack.folder", "Stack.file"}
    assert len(wanted) > 40
    assert wanted <= set(fields_set(read))


@pytest.mark.parametrize("blank", ["", " "])
@pytest.mark.parametrize(
    "place",
    # A platform is one of two words: the error names them.
    [place for place in places(tomllib.loads(FULL)) if place[-1] not in ("schema", "platform")],
    ids=lambda at: ".".join(map(str, at)),
)
def test_a_text_that_must_not_be_empty_is_refused_by_its_name(
    place: tuple[str | int, ...], blank: str, tmp_path: Path
) -> None:
    data: Any = tomllib.loads(FULL)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = blank
    text = "".join(f"{key} = {toml(value)}\n" for key, value in data.items())
    (tmp_path / "stack.toml").write_text(text)
    if blank == "" and EMPTY_IS_FINE.fullmatch(".".join(map(str, place))):
        stack.load(tmp_path)
        return
    with pytest.raises(UsageError) as caught:
        stack.load(tmp_path)
    said = str(caught.value)
    assert "is empty" in said
    assert str(tmp_path / "stack.toml") in said
    assert "\n" not in said
    named = [str(part) for part in place if isinstance(part, str) and part != "name"]
    assert all(part in said for part in named), said


@pytest.mark.parametrize(
    "where",
    [
        'environment.always = { V = "{version}" }',
        'cmake.always = { V = "{version}" }',
        'config_settings = { v = "{version}" }',
        'requires = ["x=={version}"]',
    ],
)
def test_a_build_is_given_no_version_that_only_its_wheel_knows(tmp_path: Path, where: str) -> None:
    empty = HEAD + project("a", more=f'version_file = ""\n{where}')
    load(tmp_path, empty.replace("{version}", "{version_suffix}"))
    with pytest.raises(UsageError, match=r"a is built with \{version\}, and its version_file is empty"):
        load(tmp_path, empty)
    load(tmp_path, empty.replace('version_file = ""', ""))


def test_the_variables_of_a_stack_count_where_the_project_has_none_of_its_own(tmp_path: Path) -> None:
    of_stack = HEAD + '[environment.always]\nV = "{version}"\n'
    with pytest.raises(UsageError, match="version_file is empty"):
        load(tmp_path, of_stack + project("a", more='version_file = ""'))
    load(tmp_path, of_stack + project("a", more='version_file = ""\nenvironment.always = { V = "1" }'))


def test_a_missing_stack_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        stack.load(tmp_path / "absent.toml")
    assert "--stack" in str(caught.value.tip)


@pytest.mark.parametrize(
    ("given", "said", "meant"),
    [
        ("sampel", "there is no stack sampel", "did you mean sample?"),
        ("sampl/stack.toml", "there is no stack sampl/stack.toml", "did you mean sample?"),
        ("other", "the folder other has no stack.toml", "other/sample"),
        (
            "external-builds/pyt",
            "there is no stack external-builds/pyt",
            "did you mean external-builds/pytorch?",
        ),
        ("pytroch", "there is no stack pytroch", "did you mean external-builds/pytorch?"),
        ("zzz", "there is no stack zzz", "near it are: sample, external-builds/pytorch"),
    ],
)
def test_a_mistyped_stack_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, said: str, meant: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sample", "external-builds/pytorch", "other/sample"):
        Path(name).mkdir(parents=True)
        Path(name, "stack.toml").touch()
    with pytest.raises(UsageError, match=said) as caught:
        stack.load(Path(given))
    assert meant in str(caught.value.tip)


def test_the_checkout_of_torch_hides_no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a folder called `pytorch`, as one of Cairn's own stacks is."""
    monkeypatch.chdir(tmp_path)
    Path("pytorch").mkdir()
    assert stack.load(Path("pytorch")).name == "pytorch"
    Path("pytorch", "stack.toml").write_text('schema = "cairn.stack/1"\nname = "mine"\n')
    with pytest.raises(UsageError, match=r"pytorch/stack\.toml"):
        stack.load(Path("pytorch"))


def test_a_mistyped_project_or_line_is_guessed() -> None:
    sample = stack.load(ROOT / "external-builds/sample")
    for act, meant in (
        (lambda: sample.project("torhc"), "did you mean torch?"),
        (lambda: sample.project("zzz"), "its projects are: triton, torch"),
        (lambda: sample.for_line("relase/2.9"), "did you mean release/2.9?"),
    ):
        with pytest.raises(UsageError) as caught:
            act()
        assert meant in str(caught.value.tip)


def test_only_the_version_of_what_is_built_before_can_be_named(tmp_path: Path) -> None:
    pinned = 'requires = ["a=={version:a}"]'
    chain = HEAD + project("a") + project("b", needs='["a"]')
    assert load(tmp_path, chain + project("c", needs='["b"]', more=pinned)).project("c").requires
    with pytest.raises(UsageError, match="c names the version of a"):
        load(tmp_path, chain + project("c", more=pinned))
    shared = '[environment.always]\nX = "{version:a}"\n'  # which a's own build sees as well
    with pytest.raises(UsageError, match="a names the version of a"):
        load(tmp_path, HEAD + shared + project("a"))


@pytest.mark.parametrize(
    "place", ["pyproject.toml", "docs/tutorial/step-by-step.md", "external-builds/sample/rocm/packages.toml"]
)
def test_the_compiler_of_the_sample_is_the_same_one_wherever_it_is_named(place: str) -> None:
    # A newer one would be installed in its stead on the day it comes out.
    wanted = stack.load(ROOT / "external-builds/sample/stack.toml").sdk
    assert wanted is not None
    named = re.findall(r"\bziglang *[=<>~].*?(?=[\s\"])", (ROOT / place).read_text())
    assert tuple(named) == wanted.build_requires


@pytest.mark.parametrize("name", ["sample", "pyg", "torchdevice"])
def test_what_builds_our_own_stacks_does_not_change_overnight(name: str) -> None:
    held = (ROOT / "constraints.txt").read_text().splitlines()
    for project in stack.load(ROOT / f"external-builds/{name}/stack.toml").projects:
        assert project.build_requires
        assert set(project.build_requires) <= set(held)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('prefix = "amd/x"', "cannot be the beginning of a project's name"),
        ('prefix = "amd-"', "cannot be the beginning of a project's name"),
        ('runtime = "latest"', "is not a release of ROCm"),
        ("extra = 1", "extra"),
    ],
)
def test_what_device_wheels_are_called_and_run_on_is_checked(tmp_path: Path, words: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(tmp_path, f"{HEAD}[device_wheels]\n{words}\n{project('t')}")
    good = load(tmp_path, f'{HEAD}[device_wheels]\nprefix = "amd"\nruntime = "7.14"\n{project("t")}')
    assert good.device_wheels == stack.DeviceWheels(prefix="amd", runtime="7.14")
