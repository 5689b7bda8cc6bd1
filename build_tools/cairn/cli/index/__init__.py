"""`cairn index`: serve, fill, compare and look after an index; one module per command.

`publish` has mirror too, and `upkeep` what looks after a store: check, repair, gc.
"""
