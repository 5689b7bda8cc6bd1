"""Nothing unread counts as not there: each place in `release/` that passes over an error says why it may."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from helpers.trail import ROOT

RELEASE = ROOT / "build_tools" / "cairn" / "release"
OF_READS = {
    *("CairnError", "StoreError", "NetworkError", "UsageError", "OSError", "Exception", "BaseException"),
    *("MissingKeyError", "DamagedIndexError", "DamagedObjectError", "MetadataError", "SignatureError"),
}
"""What a read may raise; ValueError and the like are of parsing."""

ABSENT = "asks whether it is there: MissingKeyError alone, which no damage and no network raises"
TOLD = "what is damaged is a finding of the same audit already"
FORMER = (
    "of the time before the ledger, which has it; what is gone since was collected, or the audit names it"
)
REASONS = {
    "audit/chains.py check_ledger": TOLD,
    "audit/chains.py _later_than": "lookups are made again from the entries, which alone decide",
    "audit/chains.py _is_true": "parts of a past generation may be collected: nobody can go back to it",
    "audit/chains.py _marks": TOLD,
    "audit/offered.py _moments": TOLD,
    "audit/sets.py _judgement": TOLD,
    "audit/sets.py _of_no_set": TOLD,
    "gate/gate.py _needs": ABSENT,
    "history/yank.py _sealed": ABSENT,
    "history/yank.py manifest_of": "finds a night by its first digits: what is not read matches nothing",
    "history/yank.py _readable": "finds a set by its first digits; `update_marks` names what is damaged",
    "index/generation.py who": "the name of a user whom the system does not know",
    "index/marks.py finish_interrupted": "repair finishes what it can; `index check` names the rest",
    "index/restore.py _etag_of_broken": ABSENT,
    "index/restore.py read_key": "lists what may be current: a damaged generation may not",
    "index/restore.py same": ABSENT,
    "index/snapshot.py ancestors": ABSENT,
    "index/write.py is_empty_page": ABSENT,
    "ledger.py _parsed": "lookups are made again from the entries, which alone decide",
    "ledger.py _entries_after": ABSENT,
    "ledger_entries.py _files": FORMER,
    "ledger_entries.py _sets": FORMER,
    "ledger_entries.py _whole": FORMER,
    "ledger_entries.py _records": FORMER,
    "ledger_entries.py _generations": FORMER,
    "provenance/chain.py parse_index_url": "an address, of which nothing is read",
    "provenance/chain.py signed_store": "an address, of which nothing is read",
    "provenance/evidence.py _record_of": "what is no result is compared as no result, and refused",
    "provenance/judged.py contradictions": "a record that is not read shows nothing, which is then lacking",
    "publish/sdk_index.py _installable": "a file name that is none of a distribution",
    "publish/sdk_index.py read": "its METADATA is asked in two ways; what neither gives is returned by name",
    "publish/sdk_packages.py lacks_by_version": "a file name that is none of a distribution",
    "records.py _result_of": ABSENT,
    "records.py _set": ABSENT,
    "records.py publish_late": "repair says what it can; `index check` names the rest",
    "serve_http.py _object": ABSENT,
    "trust/anchor.py anchor": ABSENT,
    "trust/anchor.py _newest": ABSENT,
    "trust/current.py has_promised": "a promise that no promoter signed is none",
    "trust/online.py _signed_today": "what no promoter of today signed is to be named to be signed",
    "trust/online.py refresh": "a timestamp is signed again all the same; `index check` names the rest",
    "wholes.py _cut_off": "a damaged index is named by whoever reads it next, in the same command",
}


def _names(node: ast.AST) -> set[str]:
    every = ast.walk(node)
    return {
        n.id if isinstance(n, ast.Name) else n.attr for n in every if isinstance(n, ast.Name | ast.Attribute)
    }


def _says_nothing(statement: ast.stmt) -> bool:
    """`pass`, `continue`, `break`, or `return` of nothing, a constant or a tuple of them."""
    if isinstance(statement, ast.Return):
        parts = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
        return all(part is None or isinstance(part, ast.Constant) for part in parts)
    return isinstance(statement, ast.Pass | ast.Continue | ast.Break)


def passed_over(text: str) -> Iterator[str]:
    """The functions in which an error of a read is passed over."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = _names(node.type) if node.type else {"Exception"}
            is_quiet = all(map(_says_nothing, node.body))
        elif isinstance(node, ast.Call) and "suppress" in _names(node.func):
            kinds, is_quiet = {name for each in node.args for name in _names(each)}, True
        else:
            continue
        if is_quiet and kinds & OF_READS:
            around = [one for one in functions if one.lineno <= node.lineno <= (one.end_lineno or 0)]
            yield max(around, key=lambda one: one.lineno).name if around else "the module"


def test_each_error_of_a_read_that_is_passed_over_has_its_reason() -> None:
    places = {
        f"{path.relative_to(RELEASE).as_posix()} {name}"
        for path in sorted(RELEASE.rglob("*.py"))
        for name in passed_over(path.read_text(encoding="utf-8"))
    }
    assert places - REASONS.keys() == set(), "let it fail by name, or say here why it may pass"
    assert REASONS.keys() - places == set(), "no error is passed over there any more"


def test_what_is_planted_is_seen() -> None:
    quiet = "def f():\n    try:\n        g()\n    except (ValueError, StoreError):\n        return ()\n"
    assert list(passed_over(quiet)) == ["f"]
    assert list(passed_over("def f():\n    with suppress(errors.CairnError):\n        g()\n")) == ["f"]
    assert list(passed_over("def f():\n    try:\n        g()\n    except:\n        pass\n")) == ["f"]
    assert list(passed_over(quiet.replace("return ()", "raise"))) == []
