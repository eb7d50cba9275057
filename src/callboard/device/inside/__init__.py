"""The device as a resident actor uses it, inside its context host: ops without messages."""
