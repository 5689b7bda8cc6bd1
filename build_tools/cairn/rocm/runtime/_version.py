"""The version; the packager writes the real one."""

__version__ = "0"
