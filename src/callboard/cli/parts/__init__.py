"""What several commands use."""
