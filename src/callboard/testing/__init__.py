"""Support for tests, also for users' tests: sessions without an actor system, fault injection, tolerances."""
