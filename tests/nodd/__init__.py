"""The application: NOAA's open data."""
