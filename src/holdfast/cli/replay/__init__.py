"""The commands of `holdfast replay`."""
