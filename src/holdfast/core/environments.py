"""The environments of a ledger: dev, stage and prod.

Invariants: there are exactly three, listed from the least strict to the strictest.
"""

DEV, STAGE, PROD = ENVIRONMENTS = ("dev", "stage", "prod")
