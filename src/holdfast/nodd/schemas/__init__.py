"""What this catalogue asks of the extensions that its items name."""
