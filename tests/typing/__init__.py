"""The types of the public API, shown by a type checker: a file that must pass, and one whose every mistake is found."""
