"""`cairn build`: wheels from the checkouts of a stack; one module per command.

`run` also has the options that `plan` shares, and makes the jobs of `cairn.build` of them.
"""
