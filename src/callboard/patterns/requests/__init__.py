"""A request inside a server, from its submission to its end: shared by the servers of all blueprints."""
