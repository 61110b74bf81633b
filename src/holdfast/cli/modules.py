"""Objects of an application that a command names, such as `shop:ledger`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.frames import where


def imported(name: str, *, default: str = "") -> Any:
    """Return what `module:name` names, or the module if it is named alone and there is no default name in it.

    Modules of the current folder are found. Raise InputError if the object cannot be imported.
    """
    from holdfast.engine.error_texts import error_message  # noqa: PLC0415 - the engine, on demand
    from holdfast.engine.worker.traces import traceback_text  # noqa: PLC0415

    module, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module(module)
        return getattr(found, attribute or default) if attribute or default else found
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:
        place = where(traceback_text(error))
        raise InputError(
            f"Cannot load {name!r}: {error_message(error)}"
            + (f" (at {place})" if place and place.file[0] != "<" else ""),
            next_step="Give module:name, of a module that Python can import; HOLDFAST_DEBUG=1 shows more.",
        ) from error
