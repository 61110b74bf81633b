"""The words by which the shared statements differ on SQLite."""

IDIOMS = {
    "now": ":now", "greatest": "max", "each": "json_each", "ordered": "CROSS", "number": "value", "at_text": "g.at",
}  # fmt: skip
