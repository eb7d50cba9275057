"""The implementation behind actor references: cells, their lanes and their life cycle. Not for users."""
