"""What a ledger can be for: dev, stage or prod.

Invariants: from the laxest to the strictest; there is no fourth.
"""

DEV, STAGE, PROD = ENVIRONMENTS = ("dev", "stage", "prod")
