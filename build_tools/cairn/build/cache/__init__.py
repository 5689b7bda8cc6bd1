"""A cache of built wheels, keyed by their inputs, so that nothing is built twice.

`WheelCache` takes the key of a build and gives the wheel, from a local folder or from a shared store behind
it; `trim` keeps either within a size. `entry` describes their contents.
"""

from cairn.build.cache.entry import CacheEntry, Hit, key_of
from cairn.build.cache.wheel_cache import Check, SharedCache, WheelCache, of_build

__all__ = ["CacheEntry", "Check", "Hit", "SharedCache", "WheelCache", "key_of", "of_build"]
