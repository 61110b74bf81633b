"""Models that explore the rules of `core`, and the checker that visits every state of them."""
