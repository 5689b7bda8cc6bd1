"""What of a changed signature or class breaks its users, by how Python itself binds arguments and names."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path

from cairn.wheels.interface.changes import PythonChange
from cairn.wheels.interface.difference import diff
from helpers.wheels import MakeWheel

BASES = (
    "class Base:\n    def run(self): ...\nclass Sub(Base):\n    def run(self): ...\n    def own(self): ...\n"
    "class Table(dict):\n    def keys(self): ...\n    def own(self): ...\n"
    "import elsewhere\nclass Far(elsewhere.Base):\n    def own(self): ...\n"
)
SIGNATURES = (
    *("", "a", "b", "a, b", "b, a", "a, /", "b, /", "a, b, /", "a, /, b", "*, a", "*, a=1", "a=1", "a=1, /"),
    *("a, *, b", "a, b=1", "*args", "*rest", "**kw", "*args, **kw", "a, *args", "a, **kw"),
)
CALLS = tuple(
    ((1,) * count, dict.fromkeys(names, 1))
    for count in range(4)
    for size in range(3)
    for names in itertools.combinations(("a", "b", "other"), size)
)


def change(make_wheel: MakeWheel, before: dict[str, str], after: dict[str, str]) -> PythonChange:
    made = diff(*wheels(make_wheel, before, after)).python
    assert made is not None
    return made


def wheels(make_wheel: MakeWheel, *modules: dict[str, str]) -> Iterator[Path]:
    for number, own in enumerate(modules, 1):
        yield make_wheel(version=f"{number}.0", files={name: text.encode() for name, text in own.items()})


@functools.cache
def accepts(signature: str) -> frozenset[int]:
    names: dict[str, object] = {}
    exec(f"def f({signature}): ...", names)  # noqa: S102 - the judge is Python itself
    bound = inspect.signature(names["f"])  # type: ignore[arg-type]
    taken = set[int]()
    for number, (positional, named) in enumerate(CALLS):
        try:
            bound.bind(*positional, **named)
        except TypeError:
            continue
        taken.add(number)
    return frozenset(taken)


def test_a_signature_breaks_callers_where_a_call_that_was_taken_is_not(make_wheel: MakeWheel) -> None:
    """What moved to a different place breaks them in a way that no call tells: it means another thing."""
    pairs = tuple(itertools.permutations(SIGNATURES, 2))
    before, after = (
        {"demo.py": "".join(f"def f{n}({pair[side]}): ...\n" for n, pair in enumerate(pairs))}
        for side in (0, 1)
    )
    made = change(make_wheel, before, after)
    breaking = {text.partition(":")[0] for text in made.breaking}
    surely = {text.partition(":")[0] for text in made.breaking if " moved from place " not in text}
    breaks = {f"demo.f{number}" for number, (old, new) in enumerate(pairs) if accepts(old) - accepts(new)}
    missed, false_alarms = breaks - breaking, surely - breaks
    assert [pairs[int(name.removeprefix("demo.f"))] for name in sorted(missed | false_alarms)] == []


def test_a_method_that_a_base_class_has_is_not_gone(make_wheel: MakeWheel) -> None:
    after = BASES.replace("class Sub(Base):\n    def run(self): ...\n", "class Sub(Base):\n")
    after = after.replace("def keys(self)", "def more(self)")
    made = change(make_wheel, {"demo.py": BASES}, {"demo.py": after})
    assert (made.removed, made.perhaps, made.added) == ((), (), ("demo.Table.more",))
    back = change(make_wheel, {"demo.py": after}, {"demo.py": BASES})
    assert (back.removed, back.added) == (("demo.Table.more",), ())


def test_an_attribute_that_another_method_sets_is_not_gone(make_wheel: MakeWheel) -> None:
    before = "class Late:\n    def __init__(self):\n        self.size = self.rest = 1\n"
    after = "class Late:\n    def __init__(self): self._read()\n    def _read(self): self.size = 1\n"
    made = change(make_wheel, {"demo.py": before}, {"demo.py": after})
    assert (made.removed, made.perhaps, made.added) == (("demo.Late.rest",), (), ())


def test_what_a_class_of_another_project_may_have_is_only_perhaps_gone(make_wheel: MakeWheel) -> None:
    made = change(make_wheel, {"demo.py": BASES}, {"demo.py": BASES.replace("def own", "def _own")})
    assert made.removed == ("demo.Sub.own", "demo.Table.own")
    assert made.perhaps == ("demo.Far.own",)


def test_what_a_name_of_something_compiled_has_is_only_perhaps_gone(make_wheel: MakeWheel) -> None:
    """As of cryptography 44, whose classes went into a module in Rust, and scipy 1.15, which lost a stub."""
    own = "class One:\n    def run(self, x): ...\n"
    plain = {"demo/__init__.py": f"from demo._c import Two\n{own}", "demo/_c.pyi": own.replace("One", "Two")}
    for text in ("One = demo._c.One\n", "One = _c.One\n", "One = _One\n", "One: object = _c.One\n"):
        compiled = {
            "demo/__init__.py": f"import demo._c\nfrom demo import _c\nfrom demo._c import Two, _One\n{text}",
            "demo/_c.abi3.so": "",
        }
        made = change(make_wheel, plain, compiled)
        assert (made.removed, made.breaking) == ((), ()), text
        assert made.perhaps == ("demo.One.run", "demo.Two.run")


def test_a_module_that_cannot_be_parsed_is_named(make_wheel: MakeWheel) -> None:
    """One in the syntax of a newer Python than ours has names that nobody compares."""
    before, after = wheels(make_wheel, {"demo.py": "def f(x, :\n"}, {"demo.py": "def g(:\n"})
    assert {text.partition(": ")[0] for text in diff(before, after).unread} == {"module demo"}
