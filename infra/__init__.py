"""The world outside: clusters, guests, results, clocks, manifests."""
