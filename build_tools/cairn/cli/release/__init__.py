"""`cairn release`: bring sets from channel to channel, and take them back; one module per command.

`key_and_version` has what may come before a promotion (key, new-version), and `history` what takes something
back, and the log: rollback, yank, retain, log.
"""
