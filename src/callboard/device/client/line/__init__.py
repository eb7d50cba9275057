"""The application's end of the connection to a host: op ids, queues, replies, transfers, control requests."""
