"""Fair sharing: tenants share a server by weight, whatever each of them sends."""
