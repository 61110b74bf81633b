"""The demonstration: NOAA's open data from a feed on loopback, with faults on purpose, and the proof at the end."""
