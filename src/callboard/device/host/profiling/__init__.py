"""What a host does around launches while a profiler wants it: NVTX ranges, and CUPTI's records with their ops."""
