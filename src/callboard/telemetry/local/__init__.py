"""The local socket by which ``callboard top`` reads a running application; for processes of the same user only."""
