"""What the keeper of a worker does now and then: checks, retention, archiving."""
