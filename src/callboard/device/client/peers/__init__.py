"""Copies between devices."""
