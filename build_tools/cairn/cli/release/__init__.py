"""`cairn release`: bring sets from channel to channel, and take them back.

`record` has what may come before a promotion, keys too, and `history` what takes something back, and the log.
"""
