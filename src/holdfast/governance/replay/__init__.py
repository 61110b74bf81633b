"""Replay: putting jobs back under guards."""
