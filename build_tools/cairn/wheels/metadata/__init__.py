"""What a wheel says of itself: its file name, METADATA, WHEEL and RECORD, and ROCm's part of its version.

`wheel_info.read` gives a `WheelInfo`; `record.parse_record` the rows of RECORD; `rocm_version.with_rocm` a
version.
"""
