"""What Cairn knows and does in one working tree, its submodules included: notes, locks, ids, copies.

`parts.walk` takes the root's repository and gives it and its submodules, `parts.of_commit` which submodules
a commit names and from which URLs (`.gitmodules`), `submodules` fetches and places them; `lock.hold` keeps
other runs out; `journal.read` tells what a checkout is of and how far it came; `contents.tree_state` gives
one id for all its files; `twin` makes copies.
"""
