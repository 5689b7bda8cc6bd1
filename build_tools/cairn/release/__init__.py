"""From wheels to an index that users install from.

It takes the files of a set and the test records of exactly those bytes, and gives pages of a channel in a
store. The calls one needs: `publish.wheel_set.stage_set` brings a set into staging, `promote.promote` brings
it to a release if the gate lets it. `serve.server.serving` is a store over HTTP.
"""
