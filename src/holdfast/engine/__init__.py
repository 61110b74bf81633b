"""What moves: the ledger's front door, its committer, workers, reaper and retries. One file a duty."""
