"""The life of a device: its states, restart budget, generations, standby host and notifications."""
