"""A pool of replicas: the choice of the replica that runs a request, and the handling of slow and lost replicas."""
