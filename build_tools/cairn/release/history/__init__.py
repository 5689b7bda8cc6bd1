"""Undoing changes: the log of an index, and changes that take something away without forgetting it.

Each takes a store and the name of an index, and makes a new generation: `rollback` gives an earlier state,
`yank` marks a set, `retain` drops old sets. `difference` says what changed. No file is deleted here: `gc`
does that.
"""
