"""The implementation behind actor references: cells, their mailbox lanes and their life cycle. Not public."""
