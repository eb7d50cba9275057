"""Files of models: their messages, their tensors in other files, reading on a thread."""
