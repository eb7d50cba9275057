"""Answers from documents: chunks, retrieval, context, generation."""
