"""The `holdfast` command, run for real: in this process, and as a process of its own."""
