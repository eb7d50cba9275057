"""Host memory on loan: page-locked buffers with a cap and a queue."""
