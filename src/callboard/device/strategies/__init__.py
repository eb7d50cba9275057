"""How a context host shares streams and waits for work in flight: ours, and the interfaces for one's own."""
