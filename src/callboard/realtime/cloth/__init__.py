"""Cloth: particles held together by springs of a given compliance."""
