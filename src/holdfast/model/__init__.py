"""What proves: models that explore the rules of `core` themselves, and the checker that runs them to the end."""
