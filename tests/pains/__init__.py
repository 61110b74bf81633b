"""What hurts the users of other job systems, one test or more for each pain, on both databases."""
