"""A parameter server: weights and their optimizer beside devices, for workers that go at their own speed."""
