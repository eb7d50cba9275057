"""A small model answers the requests that it is confident about, and a larger model the others."""
