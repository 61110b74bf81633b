"""The registry of operations and protocol versions."""
