"""What a wheel says about itself: its file name, METADATA, WHEEL, RECORD, and ROCm's part of its version.

`wheel_info.read` gives a `WheelInfo`; `record.parse_record` the rows of RECORD; `rocm_version.with_rocm` a
version; `cyclonedx.document` the bytes of a bill of materials, which `wheels.sbom` puts into a wheel.
"""
