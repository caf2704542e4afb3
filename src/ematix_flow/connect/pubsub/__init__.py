"""Google Pub/Sub."""
