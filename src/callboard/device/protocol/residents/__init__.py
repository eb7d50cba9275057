"""Parts of resident actors that both sides share: their base class, and the encoding of code, values and exceptions."""
