"""Vector and text indexes: exact search on the host and on a device, BM25, and fusion of rankings."""
