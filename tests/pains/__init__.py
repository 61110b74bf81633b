"""Known problems of other job systems, one test or more for each, on both databases."""
