"""The page of a running application: one static page and a stream of snapshots."""
