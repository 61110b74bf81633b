"""`nodd check`: the invariants of the application's tables, and the rules that find what breaks them."""
