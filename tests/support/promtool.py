"""Where promtool is, which checks metrics and alert rules; None if it is not installed."""

from __future__ import annotations

import shutil

PROMTOOL = shutil.which("promtool")
