"""Files that hold a token."""

from callboard.serve.http.tokens import read_token

__all__ = ["read_token"]
