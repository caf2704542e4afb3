"""Server-rendered pages over the same facts as the JSON API."""
