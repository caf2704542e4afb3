"""Object stores and folders with the promises that a commit needs, and metadata stored in them."""
