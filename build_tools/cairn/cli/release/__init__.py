"""`cairn release`: bring sets from channel to channel, and take them back; one module per command.

`history` has those that take something back, and the log of what was done: rollback, yank, retain, log.
"""
