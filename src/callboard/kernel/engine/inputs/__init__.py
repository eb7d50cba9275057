"""Inputs of models: their shapes and profiles, values that nodes can take, errors of those that fit no node."""
