"""Where connections come from: files, environment and secrets; nothing is opened here."""
