"""The state of an application as plain data, read at the moment of a scrape."""
