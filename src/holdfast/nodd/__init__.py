"""NOAA's open data, catalogued exactly once: the application that ships with Holdfast."""
