"""Mixture of experts: a gate chooses experts for each token, each expert is called once with all of its tokens."""
