"""The web page and its JSON API: the same facts as the commands, read and steered in a browser."""
