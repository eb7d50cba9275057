"""Fair sharing: tenants share a server by weight, regardless of how much each of them sends."""
