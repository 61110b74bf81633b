"""Tests of the application. PROJ is loaded before ecCodes, whose own PROJ would otherwise take its place."""

import pyproj  # noqa: F401 - see above
