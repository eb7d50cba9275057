"""A request inside a server, from its submission to its end. The servers of all blueprints share this code."""
