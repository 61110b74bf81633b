"""A console on a port of this machine, and tabs of a browser that looks at it."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import Browser, Page

from holdfast import Ledger
from holdfast.console.app import create_app
from holdfast.console.server import server
from holdfast.console.settings import ConsoleSettings, local_origins
from tests.console.serving import free_port

PATIENCE_MS = 30_000
SCREENSHOTS = os.environ.get("HOLDFAST_SCREENSHOTS")
WIDE = {"width": 1400, "height": 900}


@contextmanager
def served(ledger: Ledger) -> Iterator[str]:
    """Serve a console over a ledger, and yield its address."""
    port = free_port()
    settings = ConsoleSettings(origins=local_origins("127.0.0.1", port), open_to_all=True)
    running = server(create_app(ledger, settings), host="127.0.0.1", port=port)
    thread = threading.Thread(target=running.run, name="console", daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not running.started:
        assert time.monotonic() < until
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join(30)


@contextmanager
def tab(
    browser: Browser, address: str, *, viewport: Any = WIDE, color_scheme: Any = "light", **own: Any
) -> Iterator[tuple[Page, list[str]]]:
    """Yield an empty tab, and what it logs as an error; requests to other hosts are errors too.

    With other options (`own`) the tab is new, else it is the first one of the browser: a new one takes 0.5 s of CPU.
    """
    context = browser.new_context(**own) if own or not browser.contexts else browser.contexts[0]
    page, wrong = context.pages[0] if context.pages else context.new_page(), list[str]()
    page.set_default_timeout(PATIENCE_MS)
    page.set_viewport_size(viewport)
    page.emulate_media(color_scheme=color_scheme)
    page.goto = lambda path: Page.goto(page, urljoin(address, path))  # type: ignore[method-assign, misc, assignment]
    heard: dict[Any, Any] = {
        "console": lambda message: wrong.append(message.text) if message.type == "error" else None,
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda request: None if request.url.startswith(address) else wrong.append(request.url),
    }
    for event, act in heard.items():
        page.on(event, act)
    try:
        yield page, wrong
        for event, act in heard.items():
            page.remove_listener(event, act)
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        context.clear_cookies()
        Page.goto(page, "about:blank")
    except BaseException:
        context.close()
        raise
    if own:
        context.close()


def keep(page: Page, name: str) -> None:
    """Keep a picture of a page in HOLDFAST_SCREENSHOTS, if it names a directory, for people to look at."""
    if SCREENSHOTS is None:
        return
    page.screenshot(path=Path(SCREENSHOTS) / f"{re.sub('[^a-zA-Z0-9]+', '-', name).strip('-')}.png", full_page=True)
