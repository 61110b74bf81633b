"""A console on a port of this machine, and tabs of a browser that looks at it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from holdfast import Ledger
from holdfast.console.app import create_app
from holdfast.console.server import server
from holdfast.console.settings import ConsoleSettings, local_origins
from tests.console.serving import free_port

PATIENCE_MS = 30_000
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


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
def tab(browser: Browser, address: str, **given: Any) -> Iterator[tuple[Page, list[str]]]:
    """Yield a new tab, and what it logs as an error; requests to other hosts are errors too."""
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, "base_url": address, **given})
    page, wrong = context.new_page(), list[str]()
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(address) else wrong.append(request.url))
    yield page, wrong
    context.close()


def keep(page: Page, name: str) -> None:
    """Keep a picture of a page in build/screenshots/, for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{re.sub('[^a-zA-Z0-9]+', '-', name).strip('-')}.png", full_page=True)
