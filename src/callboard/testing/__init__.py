"""For tests, ours and users': sessions without an actor system, faults on demand, tolerances."""
