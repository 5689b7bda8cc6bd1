"""Mutations of a set, each of which must be named with its consumer; and changes that break nobody."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cairn.formats import cyclonedx
from cairn.formats.cyclonedx import Source
from cairn.formats.image import Symbol
from cairn.formats.zip.reader import Archive
from cairn.wheels.consumers import offers
from cairn.wheels.consumers.breaks import Break, judge
from cairn.wheels.consumers.linkage import Linkage
from cairn.wheels.consumers.python_names import Presence, PythonNames
from cairn.wheels.contents.binaries import Binary
from helpers.formats import make_bundle, make_code_object, make_elf
from helpers.wheels import LINUX, build_wheel

MARKERS = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux"}
GPU = 'torchy-gpu; extra == "gpu"\nProvides-Extra: gpu'
OPERATORS = b"torchy::nms(Tensor dets, float threshold) -> Tensor\0torchy::roll(Tensor x) -> Tensor\0"

INIT = b"""
from .functional import silu, old_silu
from . import nested
def scale(x, *, factor=1, mode="fast"):
    return x
class Linear:
    def __init__(self, features, bias=True):
        pass
def __getattr__(name):
    if name == "lazy":
        return 1
    raise AttributeError(name)
"""
FUNCTIONAL = b"def silu(x): return x\ndef old_silu(x): return x\n"
NESTED = b"from ..functional import *\nDEPTH = 3\n"

CONSUMER = b"""
import torchy
import torchy.functional as F
import numpy
from torchy import silu
from torchy.nested import DEPTH
try:
    from torchy import never_there
except ImportError:
    never_there = None

def run(x):
    torchy.Linear(3, bias=False)
    torchy.lazy
    torch_like = F.old_silu(x)
    return torchy.scale(x, factor=2), torch_like

def ops(x):
    import torch
    return torch.ops.torchy.nms(x, 0.5)
"""


def device_code(*targets: str) -> bytes:
    code = {f"hipv4-amdgcn-amd-amdhsa--{name}": make_code_object(name, b"code") for name in targets}
    return make_bundle(code) if code else b""


@dataclass(frozen=True, kw_only=True)
class TorchyParts:
    """What is in a wheel of the set."""

    version: str = "1.0"
    requires: Sequence[str] = ("numpy", "triton==3.5.0", GPU)
    files: Mapping[str, bytes] = field(
        default_factory=lambda: {
            "torchy/__init__.py": INIT,
            "torchy/functional.py": FUNCTIONAL,
            "torchy/nested/__init__.py": NESTED,
        }
    )
    exports: Sequence[str] = ("at_add", "at_mul", "at_extra")
    soname: str = "libtorchy.so.1"
    constants: bytes = OPERATORS
    commit: str = "a" * 40
    targets: Sequence[str] = ("gfx942", "gfx1100")

    def build(self, folder: Path) -> Path:
        name = "torchy/lib/" + self.soname
        sections = {".rodata": self.constants, ".hip_fatbin": device_code(*self.targets)}
        library = make_elf(soname=self.soname, defined=self.exports, sections=sections)
        sources = [Source(name="torchy", commit=self.commit)]
        bill = cyclonedx.document("torchy", self.version, sources=sources, rocm_version=None)
        files = {**self.files, name: library, f"torchy-{self.version}.dist-info/{cyclonedx.NAME}": bill}
        return build_wheel(
            folder, name="torchy", version=self.version, tags=LINUX, requires=self.requires, files=files
        )

    def without(self, member: str, text: bytes, instead: bytes = b"") -> TorchyParts:
        """The same, with a text of a member replaced."""
        assert text in self.files[member]
        return replace(self, files={**self.files, member: self.files[member].replace(text, instead)})


OLD = TorchyParts()
NEW = TorchyParts(version="1.1", commit="b" * 40)


def consumer(
    folder: Path, code: bytes = CONSUMER, *, requires: Sequence[str] = ("torchy[gpu]<2", "triton<4")
) -> Path:
    library = make_elf(
        needed=["libtorchy.so.1", "libc.so.6"],
        symbols=["at_add", "malloc", "at_mul"],
        sections={".hip_fatbin": device_code("gfx1100", "gfx1030")},
    )
    files = {"user/__init__.py": code, "user/_C.cpython-311-x86_64-linux-gnu.so": library}
    return build_wheel(folder, name="user", tags=LINUX, requires=requires, files=files)


def breaks_of(
    folder: Path, new: TorchyParts, code: bytes = CONSUMER, **more: Sequence[str]
) -> tuple[Break, ...]:
    wheels = [OLD.build(folder / "old")], [new.build(folder / "new")]
    return judge(*wheels, [consumer(folder / "consumer", code, **more)], markers=MARKERS).breaks


@pytest.mark.parametrize(
    ("new", "kind", "name"),
    [
        pytest.param(replace(NEW, exports=("at_add", "at_extra")), "symbol", "at_mul", id="symbol removed"),
        pytest.param(replace(NEW, exports=("at_add", "at_mul2")), "symbol", "at_mul", id="symbol renamed"),
        pytest.param(replace(NEW, exports=()), "symbol", "at_add", id="every symbol removed"),
        pytest.param(replace(NEW, soname="libtorchy.so.2"), "library", "libtorchy.so.1", id="soname bumped"),
        pytest.param(replace(NEW, version="2.0"), "requirement", "torchy[gpu]<2", id="version bumped"),
        pytest.param(
            replace(NEW, version="2.0.0a1"), "requirement", "torchy[gpu]<2", id="pre-release of the next"
        ),
        pytest.param(
            replace(NEW, requires=("numpy", "triton==4.0")),
            "requirement",
            "triton<4 beside triton==4.0",
            id="pin",
        ),
        pytest.param(
            replace(NEW, requires=("triton==3.5.0",)), "dependency", "numpy", id="requirement dropped"
        ),
        pytest.param(
            replace(NEW, requires=('numpy; extra == "np"', "triton==3.5.0")),
            "dependency",
            "numpy",
            id="now an extra",
        ),
        pytest.param(
            replace(NEW, requires=('numpy; python_version < "3.11"', "triton==3.5.0")),
            *("dependency", "numpy"),
            id="no longer for this Python",
        ),
        pytest.param(
            NEW.without("torchy/__init__.py", b"silu, "), "import", "torchy.silu", id="name removed"
        ),
        pytest.param(
            NEW.without("torchy/functional.py", b"def silu", b"def swish").without(
                "torchy/__init__.py", b"silu, ", b"swish, "
            ),
            *("import", "torchy.silu"),
            id="name renamed",
        ),
        pytest.param(
            NEW.without("torchy/functional.py", b"def old_silu(x): return x").without(
                "torchy/__init__.py", b", old_silu"
            ),
            *("name", "torchy.functional.old_silu"),
            id="function removed that is called later",
        ),
        pytest.param(
            replace(NEW, files={k: v for k, v in NEW.files.items() if "nested" not in k}),
            *("import", "torchy.nested"),
            id="module removed",
        ),
        pytest.param(
            NEW.without("torchy/nested/__init__.py", b"DEPTH", b"WIDTH"),
            "import",
            "torchy.nested.DEPTH",
            id="constant",
        ),
        pytest.param(
            NEW.without("torchy/__init__.py", b"class Linear", b"class Lin"),
            "name",
            "torchy.Linear",
            id="class",
        ),
        pytest.param(
            NEW.without("torchy/__init__.py", b"factor=1, "),
            "keyword",
            "torchy.scale(factor=)",
            id="keyword gone",
        ),
        pytest.param(
            NEW.without("torchy/__init__.py", b"bias=True", b"with_bias=True"),
            *("keyword", "torchy.Linear(bias=)"),
            id="keyword of a class renamed",
        ),
        pytest.param(
            replace(NEW, constants=OPERATORS.partition(b"\0")[2]),
            "operator",
            "torchy::nms",
            id="operator dropped",
        ),
        pytest.param(
            replace(NEW, constants=OPERATORS.replace(b"nms", b"nms_v2")),
            "operator",
            "torchy::nms",
            id="op renamed",
        ),
        pytest.param(replace(NEW, targets=("gfx942",)), "target", "gfx1100", id="device code for one target"),
        pytest.param(replace(NEW, targets=()), "target", "gfx1100", id="all device code"),
        pytest.param(
            replace(NEW, requires=("numpy", "triton==3.5.0")), "requirement", "torchy[gpu]", id="extra gone"
        ),
    ],
)
def test_a_mutation_is_named_with_its_consumer_and_the_commits(
    tmp_path: Path, new: TorchyParts, kind: str, name: str
) -> None:
    found = breaks_of(tmp_path, new)
    assert (kind, name) in {(one.kind, one.name) for one in found}
    assert {(one.consumer, one.provider, one.commits) for one in found} == {
        ("user", "torchy", ("a" * 40, "b" * 40))
    }
    assert all(f"aaaaaaaaaaaa..{'b' * 12}" in str(one) for one in found)


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(NEW, id="the same under another version"),
        pytest.param(
            replace(NEW, targets=("gfx11-generic",)), id="a target by a generic one, and one of nobody"
        ),
        pytest.param(replace(NEW, exports=("at_add", "at_mul")), id="a symbol that nobody wants"),
        pytest.param(
            NEW.without("torchy/__init__.py", b', mode="fast"', b", **more"), id="a keyword of nobody"
        ),
        pytest.param(
            NEW.without("torchy/__init__.py", b'factor=1, mode="fast"', b"**more"), id="any keyword is taken"
        ),
        pytest.param(
            NEW.without(
                "torchy/__init__.py",
                b"from .functional import silu",
                b"from .functional import *\nfrom .x import silu",
            ),
            id="another way to the same name",
        ),
        pytest.param(
            NEW.without("torchy/__init__.py", b"class Linear", b"globals().update(names())\nclass Lin"),
            id="names that are made while it is imported",
        ),
        pytest.param(
            replace(NEW, constants=b"torchy::\0nms\0roll\0"), id="an operator without a written schema"
        ),
    ],
)
def test_what_breaks_nobody_is_not_named(tmp_path: Path, new: TorchyParts) -> None:
    assert breaks_of(tmp_path, new) == ()


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    from torchy import gone\nexcept ImportError:\n    pass",
        "try:\n    import torchy\n    torchy.gone\nexcept AttributeError:\n    pass",
        "import torchy\nif torchy.__version__ < '2':\n    torchy.gone",
        "import torchy\nif hasattr(torchy, 'gone'):\n    torchy.gone",
        "import torchy\ndef f():\n    if NEW_VERSION:\n        return 1\n    return torchy.gone",
        "import torchy\nx = torchy.gone if hasattr(torchy, 'gone') else 1",
        "import torchy\nx = hasattr(torchy, 'gone') and torchy.gone",
        "import contextlib\nimport torchy\nwith contextlib.suppress(AttributeError):\n    torchy.gone",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torchy import gone",
        "import torchy\nif __name__ == '__main__':\n    torchy.gone",
        "import torchy\ndef f(torchy):\n    return torchy.gone",
        "import torchy\nx: torchy.gone",
        "def f():\n    torchy = make()\n    return torchy.gone",
        "import torchy\ntorchy.gone = 1",
        "try:\n    import torchy\nexcept ImportError:\n    import other as torchy\ntorchy.gone",
    ],
)
def test_code_that_has_a_second_way_does_not_break(tmp_path: Path, code: str) -> None:
    old = replace(OLD, files={"torchy/__init__.py": b"gone = 1\n__version__ = '1'\n"})
    new = replace(NEW, files={"torchy/__init__.py": b"__version__ = '2'\n"})
    wheels = [old.build(tmp_path / "old")], [new.build(tmp_path / "new")]
    by_choice = consumer(tmp_path / "consumer", code.encode())
    assert judge(*wheels, [by_choice], markers=MARKERS).breaks == ()
    bare = consumer(tmp_path / "bare", b"import torchy\ndef f():\n    return torchy.gone\n")
    (gone,) = judge(*wheels, [bare], markers=MARKERS).breaks
    assert str(gone) == (
        "user 1.0 uses torchy.gone: torchy 1.0 has it, 1.1 has not (user/__init__.py:3); "
        "commits aaaaaaaaaaaa..bbbbbbbbbbbb"
    )


def test_except_module_not_found_does_not_catch_a_name_that_is_gone(tmp_path: Path) -> None:
    # As black 22.1 looked for `click._unicodefun`, which click 8.1 no longer had.
    code = b"try:\n    from torchy import silu\nexcept ModuleNotFoundError:\n    silu = None\n"
    found = breaks_of(tmp_path, NEW.without("torchy/__init__.py", b"silu, "), code)
    assert [(one.kind, one.name) for one in found] == [("import", "torchy.silu")]


def test_a_namespace_that_a_consumer_shares_with_the_set_is_looked_into(tmp_path: Path) -> None:
    old = replace(OLD, files={"space/torchy/__init__.py": b"silu = 1\n"})
    new = replace(NEW, files={"space/torchy/__init__.py": b""})
    code = b"from space.torchy import silu\nfrom space.user import other\n"
    files = {"space/user/__init__.py": b"other = 1\n", "space/user/a.py": code}
    wheel = build_wheel(tmp_path / "consumer", name="user", requires=(), files=files)
    wheels = [old.build(tmp_path / "old")], [new.build(tmp_path / "new")]
    assert [one.name for one in judge(*wheels, [wheel], markers=MARKERS).breaks] == ["space.torchy.silu"]


def test_a_module_that_is_imported_by_choice_may_use_what_is_gone(tmp_path: Path) -> None:
    files = {
        "user/__init__.py": b"import torchy\nif torchy.__version__ < '2':\n    from . import old\n",
        "user/old.py": b"from torchy import silu\n",
    }
    wheel = build_wheel(tmp_path / "consumer", name="user", requires=(), files=files)
    new = NEW.without("torchy/__init__.py", b"silu, ")
    wheels = [OLD.build(tmp_path / "old")], [new.build(tmp_path / "new")]
    assert judge(*wheels, [wheel], markers=MARKERS).breaks == ()


LATE = b"""
from typing import TYPE_CHECKING
from ._late import load
NAMES = {"functional": ["silu", "swish"]}
if TYPE_CHECKING:
    from .functional import silu, swish
    from .nested import DEPTH, TWO
__getattr__, __dir__ = load(__name__, NAMES)
"""


def test_a_name_that_a_package_loads_late_is_found_by_what_it_tells_type_checkers(tmp_path: Path) -> None:
    old = replace(OLD, files={"torchy/__init__.py": LATE, "torchy/functional.py": FUNCTIONAL})
    new = (
        replace(old, version="1.1")
        .without("torchy/__init__.py", b"silu, ")
        .without("torchy/__init__.py", b'"silu", ')
    )
    wheels = [old.build(tmp_path / "old")], [new.build(tmp_path / "new")]
    user = consumer(tmp_path / "consumer", b"from torchy import silu, swish, unheard_of\n")
    assert [one.name for one in judge(*wheels, [user], markers=MARKERS).breaks] == ["torchy.silu"]


OLD_PLACE = b"""
__all__ = ["silu", "swish"]
def __dir__():
    return __all__
def __getattr__(name):
    return look_elsewhere(__all__, name)
"""


def test_a_package_that_asks_elsewhere_for_what_it_does_not_know_may_have_it(tmp_path: Path) -> None:
    # As pydantic 2 does for names of pydantic 1.
    getter = b"def __getattr__(name):\n    return migrated(name)\n"
    old = replace(OLD, files={"torchy/__init__.py": LATE, "torchy/functional.py": FUNCTIONAL})
    new = old.without("torchy/__init__.py", b"__getattr__, __dir__ = load(__name__, NAMES)", getter)
    new = replace(new, version="1.1").without("torchy/__init__.py", b"silu, ")
    wheels = [old.build(tmp_path / "old")], [new.build(tmp_path / "new")]
    user = consumer(tmp_path / "consumer", b"from torchy import silu\n")
    assert judge(*wheels, [user], markers=MARKERS).breaks == ()


def test_an_old_place_of_names_has_those_that_it_lists(tmp_path: Path) -> None:
    # As scipy's modules without an underscore do; gensim 4.3.2 took triu from one until scipy 1.13.
    old = replace(OLD, files={"torchy/__init__.py": b"", "torchy/old_place.py": OLD_PLACE})
    new = replace(old, version="1.1").without("torchy/old_place.py", b'"silu", ')
    wheels = [old.build(tmp_path / "old")], [new.build(tmp_path / "new")]
    user = consumer(tmp_path / "consumer", b"from torchy.old_place import silu, swish, other\n")
    assert [one.name for one in judge(*wheels, [user], markers=MARKERS).breaks] == ["torchy.old_place.silu"]


def test_a_source_that_cannot_be_parsed_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    files = {"user/a.py": b"def (:\n", "user/b.py": b"from torchy import silu\n", "user/\xc3\xa9 x.py": b"\0"}
    named = {name.encode("latin-1").decode(): data for name, data in files.items()}
    wheel = build_wheel(tmp_path / "consumer", name="user", requires=(), files=named)
    new = NEW.without("torchy/__init__.py", b"silu, ")
    judgement = judge([OLD.build(tmp_path / "old")], [new.build(tmp_path / "new")], [wheel], markers=MARKERS)
    assert [one.name for one in judgement.breaks] == ["torchy.silu"]
    assert judgement.unread == (f"{wheel.name}: user/a.py", f"{wheel.name}: user/é x.py")


def test_a_version_of_a_symbol_must_be_there_unless_the_library_has_none() -> None:
    user = Binary(format="elf", machine="x86_64", path="u.so", size=1, needed=("libouter.so",))
    wanted = Symbol("f", "V_1", "libinner.so")

    def linkage(*exports: Symbol) -> Linkage:
        outer = Binary(
            format="elf", machine="x86_64", path="libouter.so", size=1, needed=("libinner.so", "libouter.so")
        )
        inner = Binary(format="elf", machine="x86_64", path="libinner.so", size=1, exports=frozenset(exports))
        return Linkage([outer, inner])

    assert linkage(Symbol("f", "V_1")).binding(user, wanted) is not None
    assert linkage(Symbol("f")).binding(user, wanted) is not None
    assert linkage(Symbol("f", "V_2")).binding(user, wanted) is None
    assert linkage(Symbol("f", "V_2")).binding(user, Symbol("f")) is not None
    assert linkage(Symbol("g", "V_1")).binding(user, wanted) is None


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(b"x = " + b" + ".join([b"'a'"] * 1500), id="sum"),
        pytest.param(b"if a == 0:\n    pass\n" + b"elif a == 1:\n    pass\n" * 500, id="elif"),
    ],
)
def test_code_in_long_chains_is_read_like_any_other(tmp_path: Path, code: bytes) -> None:
    # Each part of the chain stands in the one before it, deeper than functions of Python may call each other.
    code = b"from torchy import silu\n" + code + b"\n"
    wheel = consumer(tmp_path / "consumer", code)
    new = NEW.without("torchy/__init__.py", b"silu, ")
    judgement = judge([OLD.build(tmp_path / "old")], [new.build(tmp_path / "new")], [wheel], markers=MARKERS)
    assert ([one.name for one in judgement.breaks], judgement.unread) == (["torchy.silu"], ())


def test_what_is_nested_too_deeply_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    deep = b"from torchy import silu\nx = " + b"-" * 1500 + b"1\n__all__ = ['silu']\n"
    files = {"user/a.py": deep, "user/b.py": b"from torchy import silu\n"}
    wheel = build_wheel(tmp_path / "consumer", name="user", requires=(), files=files)
    new = replace(NEW, files={**NEW.files, "torchy/__init__.py": deep})
    for set_of, names in ((NEW.without("torchy/__init__.py", b"silu, "), ["torchy.silu"]), (new, [])):
        wheels = [OLD.build(tmp_path / "old")], [set_of.build(tmp_path / "new")]
        judgement = judge(*wheels, [wheel], markers=MARKERS)
        assert [one.name for one in judgement.breaks] == names
        assert judgement.unread == (f"{wheel.name}: user/a.py",)


def test_modules_that_take_names_over_from_each_other_are_looked_into_once(tmp_path: Path) -> None:
    others = range(6)
    files = {
        f"torchy/m{number}.py": "".join(f"from .m{n} import *\n" for n in others if n != number).encode()
        for number in others
    }
    files["torchy/__init__.py"] = b"from .m0 import *\n"
    files["torchy/m5.py"] += b"from .other import *\n"
    old = replace(OLD, files={**files, "torchy/other.py": b"def silu(x, old=1): ...\nclass A:\n    b = 1\n"})
    new = replace(NEW, files={**files, "torchy/other.py": b"class A: ...\n"})
    wheels = [old.build(tmp_path / "old")], [new.build(tmp_path / "new")]
    user = consumer(tmp_path / "consumer", b"from torchy import silu, unheard_of\n")
    assert [one.name for one in judge(*wheels, [user], markers=MARKERS).breaks] == ["torchy.silu"]
    with Archive.open(*wheels[0]) as archive:
        presences = [PythonNames([archive]).look_up(f"torchy.A{end}").presence for end in ("", ".b", ".c")]
    assert presences == [Presence.PRESENT, Presence.PRESENT, Presence.UNKNOWN]


def test_operators_are_looked_for_in_files_of_any_size_without_holding_one(tmp_path: Path) -> None:
    # Deflate does not see that it repeats itself, 64 KiB further on.
    table = (b"#" + os.urandom(1024).hex().encode() + b"x" * 63 * 1024) * 1050
    large = replace(NEW, constants=table + b"nms\0")
    wheel = replace(large, files={**NEW.files, "torchy/table.py": table + b"torchy::roll"}).build(tmp_path)
    with offers.opened([wheel]) as offer:
        tracemalloc.start()
        assert offer.mentioned(("torchy::nms", "torchy::roll", "torchy::old")) == {
            "torchy::nms",
            "torchy::roll",
        }
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < len(table) // 4
