"""Devices: ``client`` in the application, ``host`` beside the context, ``protocol`` between, ``supervision`` above."""
