"""Several devices of one program: placement of work and entities, links, collectives, replay, nodes of a cluster."""
