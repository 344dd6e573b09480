"""Record files, which pawl-worker reads for the built-in models: `python -m pawl convert`."""

from pawl.convert.record_file import Column, RecordWriter

__all__ = ("Column", "RecordWriter")
