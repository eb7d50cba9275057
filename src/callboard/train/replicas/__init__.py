"""Replicas of a model beside devices, brought to one state after a loss."""
