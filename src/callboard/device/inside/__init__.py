"""The device API of a resident actor, inside its context host: ops are launched on the actor's thread."""
