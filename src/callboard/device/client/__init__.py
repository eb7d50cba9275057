"""The application's side: the handle of a device, its calls on their way, callers of resident actors."""
