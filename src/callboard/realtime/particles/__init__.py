"""Particles that forces move, emitters make and obstacles stop."""
