"""Who may do what through the console: accounts, tokens, sessions, permissions, and what every response carries."""
