"""Types that all backends share: dtypes, layouts, refs, ops, errors, and the interface of a backend."""
