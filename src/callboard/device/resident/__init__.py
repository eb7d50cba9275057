"""Resident actors: users' own classes beside the device, in its context host."""
