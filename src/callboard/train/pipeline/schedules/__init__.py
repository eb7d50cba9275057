"""Schedules as pure functions, and what they would take."""
