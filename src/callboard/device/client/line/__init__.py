"""The application's end of the op line: ids, queues, replies, transfers, control requests."""
