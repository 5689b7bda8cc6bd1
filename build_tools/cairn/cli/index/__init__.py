"""`cairn index`: serve, fill, compare and look after an index; one module per command.

`upkeep` has those that look after a store: audit, render, recover, gc.
"""
