"""Where the browser of the system is; None if there is none, and the end of the run says what was not tested."""

from __future__ import annotations

import shutil

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
