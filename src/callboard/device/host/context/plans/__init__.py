"""Host plans: the prepared execution of each signature, cached while it is used."""
