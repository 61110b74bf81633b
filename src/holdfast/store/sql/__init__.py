"""Statements that both databases share; a dialect's folder holds those that really differ."""
