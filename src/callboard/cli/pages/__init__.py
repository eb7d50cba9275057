"""Commands that serve a page for the browser."""
