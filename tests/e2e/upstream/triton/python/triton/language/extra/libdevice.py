"""Functions of the device library."""
