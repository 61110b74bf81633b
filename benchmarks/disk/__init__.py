"""The simulated disk of the benchmarks: see `disk.py` and `fsyncshim.c`."""

from benchmarks.disk.disk import DiskError, SimulatedDisk, Syncs

__all__ = ["DiskError", "SimulatedDisk", "Syncs"]
