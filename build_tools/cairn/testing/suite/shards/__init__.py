"""A suite cut into shards that take equally long: which tests run on which machine.

`times` reads how long tests took, from upstream's files or from earlier runs of ours; `plan` cuts by it. Each
machine makes the same plan by itself, from the same modules and times, so nothing has to be handed around;
the plan's digest is in the results of each shard, and `merge` refuses two that differ.
"""
