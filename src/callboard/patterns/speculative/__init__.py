"""Speculative decoding: a draft proposes tokens, and the target model verifies several in one pass."""
