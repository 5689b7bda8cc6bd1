"""Whether a store is what its generations say: every key, page, file and set. Nothing is changed.

It takes a store and gives an `AuditReport`. `audit.audit` is what one calls; `inventory` lists and
classifies; `generations`, `offered` and `sets` each look for one kind of damage, and yield a `Problem` each.
"""
