"""What differs by one word in the shared statements, on SQLite."""

IDIOMS = {
    "now": ":now", "greatest": "max", "each": "json_each", "ordered": "CROSS", "number": "value", "at_text": "g.at",
}  # fmt: skip
