"""What Cairn knows and does in one working tree, its submodules included: notes, locks, ids, copies.

`state.read` and `state.alone`; `submodules.place_all`; `tree_hash.tree_state`.
"""
