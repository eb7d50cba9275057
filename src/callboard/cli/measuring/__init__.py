"""Commands that measure: a benchmark of ops, a trace of a program."""
