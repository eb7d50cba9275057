"""Devices, divided by the process in which code runs.

``client`` and ``supervision`` run in the application, ``host`` and ``inside`` run in the context host, and ``protocol``
runs in both.
"""
