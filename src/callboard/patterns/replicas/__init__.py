"""A pool of replicas: which of several copies of a model runs a request, and what happens when one is slow or lost."""
