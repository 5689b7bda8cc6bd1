"""`cairn release`: bring sets from channel to channel, and take them back; one module per command.

`prepare` has what may come before a promotion (key, new-version), and `history` what takes something back,
and the log: rollback, yank, retain, log.
"""
