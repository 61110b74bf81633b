"""The console: pages and an HTTP API over one ledger, as an ASGI application that runs alone or inside another one.

`holdfast.console.app.create_app(ledger, settings)` makes it; it needs the extra `console`. Guide: docs/console.md.
"""
