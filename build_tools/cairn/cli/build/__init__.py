"""`cairn build`: wheels from the checkouts of a stack; one module per command.

`options` has what several commands take, and makes the jobs of `cairn.build` of it.
"""
