"""`cairn release`: bring sets from channel to channel, and take them back; one module per command.

`key` has what may come before a promotion, and `history` what takes something
back, and the log: rollback, yank, retain, log.
"""
