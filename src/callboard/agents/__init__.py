"""Agents: embeddings that are kept, and indexes that find the nearest of them."""
