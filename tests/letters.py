"""Letters for drawn texts: of one to four bytes, white space, control characters.

All of Unicode, which hypothesis draws from if it is told nothing, takes each worker four seconds to list.
"""

LETTERS = "aZ9 \n\0\x7f\xe9\u20ac\ufffd\U0001f600"
