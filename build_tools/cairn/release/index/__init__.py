"""A channel of the index as it is stored: its state, its pages, and the one write that changes it.

It takes a store and a `commit.ChannelChange`, and gives pages that pip and uv read. `snapshot.Channel(store,
name).load()` is the channel at one moment; `commit.commit` changes it so that a crash anywhere can be
finished or undone. Keys are spelt in `keys` alone, pages made in `render` and written by `write`.
"""
