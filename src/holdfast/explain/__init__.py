"""Why a job is not running, and the next command."""
