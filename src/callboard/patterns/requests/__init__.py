"""A request inside a server, from its submission to its end: what the servers of all blueprints share."""
