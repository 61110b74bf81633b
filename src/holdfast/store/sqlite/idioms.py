"""The words by which the shared statements differ on SQLite."""

IDIOMS = {
    "now": ":now", "greatest": "max", "each": "json_each", "ordered": "CROSS", "number": "value", "at_text": "g.at",
    "with_call": "CROSS JOIN holdfast_calls c ON c.job_id = j.job_id",
}  # fmt: skip
CASTS: dict[type, str] = {}  # of a value in JSON to the kind of a column: it has it
