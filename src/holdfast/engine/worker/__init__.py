"""The worker: it claims jobs, runs them, keeps their leases and recovers what others lost."""
