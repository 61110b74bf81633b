"""The words by which the shared statements differ on PostgreSQL, and the parameters of its driver."""

import re
from datetime import datetime
from functools import cache

# A time in the text format that both databases hash.
TIME_TEXT = """to_char(g.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
# The call of a job `j`, looked up by its id for one job after the other. With a plain join the planner prefers to walk
# all calls beside the jobs of a page, from the first call on: it does not know that the page begins far away.
WITH_CALL = "CROSS JOIN LATERAL (SELECT * FROM holdfast_calls n WHERE n.job_id = j.job_id OFFSET 0) c"
IDIOMS = {
    "now": "coalesce(:now, statement_timestamp())", "greatest": "greatest", "each": "json_array_elements_text",
    "ordered": "INNER", "number": "value::bigint", "at_text": TIME_TEXT,
    "with_call": WITH_CALL,
}  # fmt: skip
CASTS: dict[type, str] = {int: "::bigint", datetime: "::timestamptz"}  # of a value in JSON to the kind of a column
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)\b")


@cache
def pyformat(sql: str) -> str:
    """Return a statement with psycopg's placeholders in place of `:name`."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))
