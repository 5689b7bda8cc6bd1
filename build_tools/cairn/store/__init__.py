"""Where an index lives: a handful of operations that a folder and a bucket can both give (`folder.Store`)."""
