"""Dynamic batching: single requests in, batches to a function or a model, single answers out."""
