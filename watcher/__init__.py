"""The watcher: hears what happens in the clusters and rings the orders that it concerns."""
