"""Dynamic batching: single requests are batched for a function or a model, and answered one by one."""
