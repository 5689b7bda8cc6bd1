"""A plan as a graph to look at; nothing here builds.

`steps` makes it of the plans of all variants, `explain` says which input made a step new.
"""
