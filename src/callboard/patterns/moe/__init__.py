"""Mixture of experts: a gate chooses experts for each token, and each expert is called once with all of its tokens."""
