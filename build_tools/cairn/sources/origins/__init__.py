"""Make git repositories of origins that are described in files, not hosted.

`materialize.materialize` takes `TreeOrigin` (a folder with `history.toml`) and `SdistOrigin` (an archive of a
package index), and gives the folders of the bare repositories that it made, as `history_toml` describes them.
"""
