"""Speculative decoding: a draft proposes tokens, the target model verifies several in one pass."""
