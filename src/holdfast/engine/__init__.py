"""The path of a job: the ledger's API, its committer, workers, reaper and retries."""
