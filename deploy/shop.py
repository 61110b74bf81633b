"""An example application for compose.yaml: one operation. Replace it by your own."""

from holdfast import Execution, Ledger

ledger = Ledger()  # HOLDFAST_URL


@ledger.operation("greet", version="1.0.0")
def greet(run: Execution, name: str) -> str:
    """Return a greeting."""
    run.progress(0.5, "half way")
    return f"Hello, {name}!"
