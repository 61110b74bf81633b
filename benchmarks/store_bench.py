"""What the ledger's enforcement costs: the store's own verbs beside bare SQL that writes the same rows.

Both sides have the same tables, columns, checks, references and indexes: the bare side is a ledger whose triggers were
dropped, so it writes no journal and no deltas and refuses nothing. It is written with the fastest statements found
for each database, not with the store's.

Invariants: both sides take turns, round by round, in one process, each in a database of its own, so that drift of the
machine falls on both and neither pays for the other's write-ahead log; what is measured is a whole durable transaction
for each batch, on the simulated disk; a run that did not write exactly the rows it claims to have written stops.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import batched as _batched  # type: ignore[attr-defined,unused-ignore]
