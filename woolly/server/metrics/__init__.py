"""metrics: figures of the server for Prometheus."""
