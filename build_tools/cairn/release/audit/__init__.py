"""Check that every key, page, file and set of a store is what its generations say. Nothing is changed.

It takes a store and gives an `inventory.AuditReport`. `audit.audit` is the call; `inventory` lists and
classifies; `chains`, `offered` and `sets` each look for one kind of damage, and yield a `Problem` each.
"""
