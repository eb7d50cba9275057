"""``dev.profile()``: the ops of a block of code, and the time that they take."""
