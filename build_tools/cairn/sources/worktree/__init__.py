"""The state of one working tree and its submodules: journal, ids, copies.

`parts.walk` yields the root's repository and its submodules; `parts.of_commit` reads which submodules
a commit names and from which URLs (`.gitmodules`), `submodules` fetches and places them; `journal.read` tells
what a checkout is of and how far it came; `contents.tree_state` gives one id for all its files; `twin` makes
copies.
"""
