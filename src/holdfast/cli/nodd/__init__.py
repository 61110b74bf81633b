"""The commands of `holdfast nodd`, and `nodd-replay`."""
