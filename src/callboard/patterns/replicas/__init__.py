"""A pool of replicas: the choice of the copy of a model that runs a request, and the handling of slow and lost ones."""
