from __future__ import annotations

from cairn.formats.zip.reader import Archive
from cairn.wheels.interface.python_api import Parameter, PythonSources, public_api
from helpers.formats import make_elf
from helpers.wheels import LINUX, MakeWheel

FILES = {
    "demo/__init__.py": "from demo._inner import Hidden as Shown, helper\n"
    "from .tools import *\nfrom .ring import *\nimport os\nfrom typing import Any\n"
    "def add(a, /, b: int = 3, *rest, c, d=None, **more): ...\n_private = 1\nLIMIT = 2\n",
    "demo/_inner.py": "class Hidden(Base):\n    size = 1\n    def __init__(self, x, y=2): ...\n"
    "    def run(self, fast=True): ...\n    def _own(self): ...\n    @staticmethod\n    def make(n): ...\n"
    "def helper(): ...\n",
    "demo/tools.py": "__all__ = ['used', 'more']\ndef used(): ...\ndef unused(): ...\nmore = 1\n",
    "demo/ring.py": "from demo import *\nringed = 1\n",
    "demo/lazy.py": "def __getattr__(name): ...\nknown = 1\n",
    "demo/broken.py": "def f(:\n",
    "demo/_C.pyi": "from typing import overload\ndef native(x: int) -> int: ...\n"
    "@overload\ndef several(x: int) -> int: ...\n@overload\ndef several(x: str) -> str: ...\n",
    "demo/stubbed.py": "from demo._C import *\n",
    "demo/opaque.py": "from demo._D import *\n",
    "demo/tests/test_it.py": "def test_it(): ...\n",
    "demo/odd-name.py": "x = 1\n",
    "demo/é.py": "ü = 1\n",
    "other-1.0.data/purelib/late.py": "here = 1\n",
}


def test_the_public_names_of_a_wheel(make_wheel: MakeWheel) -> None:
    content = {name: text.encode() for name, text in FILES.items()}
    content["demo/_D.cpython-311-x86_64-linux-gnu.so"] = make_elf()
    with Archive.open(make_wheel(tags=LINUX, files=content)) as archive:
        api = public_api(PythonSources(archive))
    assert set(api.names) == {
        *("demo", "demo.Shown", "demo.Shown.size", "demo.Shown.run", "demo.Shown.make", "demo.helper"),
        *("demo.used", "demo.more", "demo.ringed", "demo.add", "demo.LIMIT", "demo.tools", "demo.tools.used"),
        *("demo.tools.more", "demo.ring", "demo.ring.ringed", "demo.lazy", "demo.lazy.known", "demo.broken"),
        *("demo.stubbed", "demo.stubbed.native", "demo.stubbed.several", "demo.opaque", "demo.é"),
        *("demo.é.ü", "late", "late.here"),
        *("demo.ring.add", "demo.ring.LIMIT", "demo.ring.used", "demo.ring.more"),
    }
    assert api.names["demo.Shown"].parameters == (
        Parameter("x", "positional or keyword", None),
        Parameter("y", "positional or keyword", "2"),
    )
    assert api.names["demo.Shown"].target == "demo._inner.Hidden"
    assert api.names["demo.Shown.make"].parameters == (Parameter("n", "positional or keyword", None),)
    assert api.names["demo.add"].parameters == (
        Parameter("a", "positional-only", None),
        Parameter("b", "positional or keyword", "3"),
        Parameter("rest", "variadic positional", None),
        Parameter("c", "keyword-only", None),
        Parameter("d", "keyword-only", "None"),
        Parameter("more", "variadic keyword", None),
    )
    assert api.dynamic >= {"demo.lazy", "demo.opaque", "demo.broken"}
    assert [text.partition(":")[0] for text in api.unread] == ["demo.broken"]
