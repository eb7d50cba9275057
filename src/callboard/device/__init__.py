"""Devices: ``client`` in the application, ``host`` next to the context, ``protocol`` between, ``supervision`` above."""
