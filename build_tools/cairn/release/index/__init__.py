"""A channel of the index as it is stored: its state, its pages, and the one write that changes it.

`snapshot.Channel` reads it; `commit.commit` changes it so that a crash anywhere can be finished or undone
(`commit.recover`); `render` makes pages of state and `write` puts them there. Keys are spelt in `keys` alone.
"""
