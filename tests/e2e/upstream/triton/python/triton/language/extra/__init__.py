"""Libraries of devices."""

from triton.language.extra import libdevice
