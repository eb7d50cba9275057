"""What a device lives through: its states, its budget, its generations, its standby, and who is told."""
